"""`chronik demo`: a guided tour of a cluster and a pipeline."""
