"""How a client gets in: its settings, TLS, and the login."""
