"""What pipelines say about themselves: to a terminal, and to a topic that anyone may read and write to."""
