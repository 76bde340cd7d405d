"""What requests of clients need besides partitions: sessions, checks of what is sent, waits, refusals."""
