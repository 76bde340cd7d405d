"""Kafka's configuration keys, their validation, and the resolution of their values."""
