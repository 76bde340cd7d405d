"""Records from leaders to followers, over the peers' connections; and what leaders report about it to the cluster."""
