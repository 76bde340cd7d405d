"""Migration of topics between clusters: import from a data directory or a backup, and backup of a cluster.

docs/internals/decisions/2026-11-16-import.md and 2026-11-16-backup.md explain the design.
"""
