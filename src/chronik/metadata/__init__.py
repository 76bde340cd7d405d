"""Cluster metadata: the commands, the image that they change, and the stores that replicate and persist both."""
