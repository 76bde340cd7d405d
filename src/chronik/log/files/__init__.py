"""The files of a log: names, indexes, marks, room after the batches, and the way around damage."""
