"""Chronik compared with Apache Kafka, with the same client (`make bench-peers`)."""
