"""Progress reports of pipelines, on a terminal and in the pipeline journal, a topic that clients can read and write."""
