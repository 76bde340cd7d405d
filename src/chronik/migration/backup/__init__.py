"""Backups of a cluster: immutable files and a manifest that lists them."""
