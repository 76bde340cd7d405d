"""Topics as tables, without Spark and without a jar.

`topic_table` says what a table can do, `opening` gives them, `delta` is what they are made of: it commits files along
with the topic's offsets in the table's own transaction log. `layout` says which columns a table holds, `values` what
becomes of decoded values, `spans` what may be committed. On executors `parquet` writes files, and `files` reads them.
"""
