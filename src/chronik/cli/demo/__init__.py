"""`chronik demo`."""
