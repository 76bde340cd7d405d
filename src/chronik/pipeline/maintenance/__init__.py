"""Maintenance of tables: compaction, vacuum, retry of dead-letter records, and replay of rows into topics."""
