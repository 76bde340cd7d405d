"""Request and response models of the admin API, encoded as JSON."""
