"""Vectorised conversion between Kafka record batches and Arrow columns. No I/O."""
