"""History of a node: samples of its metrics over the last 24 hours, at decreasing resolution. Pure: no clock or files.

`metrics` declares the metrics, `series` has their ring buffers, `store` answers queries, and `aggregation` combines the
answers of several nodes.
"""
