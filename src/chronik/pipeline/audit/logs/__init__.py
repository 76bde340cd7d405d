"""Comparison of replicas: every batch is checked, and differences are located down to the record and byte.

`batch_scanner` checks the batches of one replica; `digests` hashes chunks of offsets, so that replicas can be compared
by a few bytes; `divergence` (for compacted partitions `compacted_divergence`) locates the differences. `range_plan`
splits the work into tasks, `slice_scan` is one of them, and `log_comparison` runs them.
"""
