"""Topics in Spark: which offsets a query or a task reads, how their bytes come, and the source `chronik`.

`options` says what is asked for, `positions` asks brokers where partitions begin and end, `ranges` cuts that up.
`fetching` and `segments` are the two ways for bytes to come, `reader` makes records of them. `source` and `stream` are
what Spark calls; where a stream's micro-batches end is decided by `micro_batches`.
"""
