"""The Spark source `chronik`: planning of offset ranges, transports for their bytes, and Spark's reader interfaces.

`option_names` checks the names of options, and `options` parses their values. `offset_resolver` looks up partitions and
their offsets, and `offset_ranges` splits ranges. `fetch_transport` and `segment_transport` read the bytes, which
`range_reader` decodes. Spark calls `reader`; `micro_batch_planner` decides where each micro-batch of a stream ends.
`error_reports` makes the report of an error start with its message.
"""
