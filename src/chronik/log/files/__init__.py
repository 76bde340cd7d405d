"""The files of a partition log: names, indexes, checkpoints, preallocation and batch validation."""
