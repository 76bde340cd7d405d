"""HTTP server of a node: bound when the node starts, imported on the first request."""
