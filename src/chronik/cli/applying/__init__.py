"""`chronik apply` and `chronik export`: a file that describes a cluster, what is to be done for it, and back."""
