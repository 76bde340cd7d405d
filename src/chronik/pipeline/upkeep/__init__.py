"""Looks after tables: joins files, removes unused ones, tries dead letters again, puts rows back into topics."""
