"""The files of a log: names, indexes, marks, room behind the batches, and the way around damage."""
