"""Users and quotas in the metadata image."""
