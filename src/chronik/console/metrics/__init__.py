"""What /metrics tells: the table of all families, and who makes their samples."""
