"""Comparison of tables with the log: each record must have one equal row, and each row a record."""
