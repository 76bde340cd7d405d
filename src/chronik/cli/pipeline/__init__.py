"""`chronik pipeline …`."""
