"""Tables beside the log: every record has its row, every row its record, and they agree."""
