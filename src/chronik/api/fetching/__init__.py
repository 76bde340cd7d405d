"""What a fetch does besides waiting: it looks at partitions, and turns batches into what old clients read."""
