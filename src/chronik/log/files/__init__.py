"""The files of a log: names, indexes, marks, what is synced, room after the batches, and the way around damage."""
