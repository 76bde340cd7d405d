"""Collectors of the doctor's facts: files, the operating system and sockets. They are read-only."""
