"""The interactive prompt of `chronik pipeline sql`."""
