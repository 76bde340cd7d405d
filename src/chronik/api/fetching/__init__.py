"""What a fetch does besides waiting: it looks at partitions, and converts batches for old clients."""
