"""The command `chronik demo`."""
