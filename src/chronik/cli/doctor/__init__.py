"""`chronik doctor`: what is wrong with a node, a folder or a cluster, and what to do."""
