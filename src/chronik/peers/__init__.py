"""The nodes of a cluster among themselves: authenticated connections, messages and calls."""
