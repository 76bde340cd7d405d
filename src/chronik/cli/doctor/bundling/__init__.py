"""A report for somebody else to read: all that was seen, and no secret."""
