"""`chronik schemas`: schemas of the cluster's registry or of any other schema registry."""
