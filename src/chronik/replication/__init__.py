"""Replication of partitions: followers fetch from leaders, and leaders propose ISR changes and offset checkpoints."""
