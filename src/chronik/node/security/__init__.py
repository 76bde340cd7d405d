"""Who comes in by which door, put together for one node: logins, TLS, rights, and the first user."""
