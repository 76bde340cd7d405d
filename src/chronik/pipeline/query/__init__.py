"""SQL over topics: landed rows and the live tail as one view, without gaps and duplicates.

`lexer` and `name_resolution` find out which topics a statement refers to, and `time_travel` as of when.
`topic_snapshots` fixes the boundary between landed rows and live tail, `live_tail` reads the tail in tasks, and
`landed_rows` tables on S3, unless `s3a` finds Hadoop's S3 client. `error_summary` shortens Spark's error messages to
one line. `views`, `sql` and `spark_catalog` have the public functions; `table_source` reads the tables that
`spark_catalog` registers. Spark forks its workers from `warm_daemon`.
"""
