"""Topics as tables: Delta, written through delta-rs and pyarrow, without Spark and without a jar.

`columns` says what a table holds, `parquet` writes its files (on executors), `delta` commits them (on the driver) with
the topic's offsets in the table's own transaction log, `progress` decides what may be committed, `evolution` which
columns are added, `inference` and `shaping` what becomes of decoded values, and `exact_json` what no parser would tell
of them; `commit_log` makes commits durable; `compaction` and `vacuuming` keep it tidy.
"""
