"""A node's HTTP side: health, metrics and status."""
