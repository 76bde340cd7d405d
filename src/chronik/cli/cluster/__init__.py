"""`chronik cluster`: local clusters, and administration of any cluster."""
