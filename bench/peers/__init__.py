"""Chronik beside Apache Kafka, by one client: `make bench-peers`."""
