"""Record batches to Arrow columns and back, thousands of records at once. Pure."""
