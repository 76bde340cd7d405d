"""Planning of cluster changes: voters, replica moves, and whether nodes can be stopped.

Pure functions without I/O: they take views of nodes and partitions and return plans. The caller (the CLI or the
console) builds the views and executes the plans.
"""
