"""`chronik cluster`: clusters on this machine, and what operators do with any cluster."""
