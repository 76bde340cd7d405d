"""Parts of the Fetch handler: reading partitions, and converting batches for old clients."""
