"""Client access to secured brokers: security settings, TLS and SASL authentication."""
