"""What to do when a cluster grows, shrinks or is to be stopped in part: plans, and reasons why not.

Pure, and below everything: views of nodes and partitions go in, plans come out. Whoever asks (a command, later the
console) makes the views and carries the plans out.
"""
