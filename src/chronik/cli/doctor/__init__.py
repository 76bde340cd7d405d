"""`chronik doctor`: diagnose a node, a data directory or a cluster, and suggest fixes."""
