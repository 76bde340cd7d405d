"""Replicas beside each other: every batch is checked, and where replicas differ the record is named.

`walk` goes over the batches of a replica and tells whatever is wrong with them alone; `digests` sums chunks of offsets
up, so that replicas are compared by a few bytes; `narrowing` (of compacted partitions `surviving`) looks where they
differ. `stretches` cuts the work into tasks, `examining` is one of them, `compare` has them run.
"""
