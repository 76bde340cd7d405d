"""Tables of topics, independent of Spark and the JVM.

`topic_table` defines the interface of a table, and `catalog` opens tables. `delta` implements them: it commits data
files together with the topic's offsets in the transaction log. `layout` defines the columns, `values` converts decoded
values, and `commit_plan` decides what may be committed. Executors write files with `parquet` and read them with
`table_files`.
"""
