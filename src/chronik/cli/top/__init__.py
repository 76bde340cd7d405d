"""`chronik top`: a cluster, live in the terminal."""
