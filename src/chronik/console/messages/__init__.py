"""Filters and display of messages, independent of how they are read."""
