"""Request state of the broker: fetch sessions, record validation, delayed fetches and rejected batches."""
