"""Authentication, authorization and quotas. No I/O except for reading the metadata image."""
