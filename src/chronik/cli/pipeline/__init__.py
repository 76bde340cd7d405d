"""The command `chronik pipeline`, one file for each kind of action."""
