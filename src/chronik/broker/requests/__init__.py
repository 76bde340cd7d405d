"""What clients' requests need besides partitions: sessions, checks of what is sent, waits, refusals."""
