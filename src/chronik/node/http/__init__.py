"""A node's HTTP port: opened when the node starts, loaded when it is asked."""
