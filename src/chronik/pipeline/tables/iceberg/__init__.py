"""Topic tables as Iceberg tables: the topic's offsets are in the summaries of the snapshots that add their rows."""
