"""Topics on their way from one store to another: from a standalone folder or a backup into a cluster, and from a
cluster into a backup. How, and why so: docs/decisions/2026-11-16-moving-in.md."""
