"""Topics into tables, each record exactly once: `chronik pipeline run`, or `run(…)` in a notebook.

There is no checkpoint. A round reads from the table's own log how far it is, plans explicit ranges of offsets up to
what brokers have committed, lets the tasks of one Spark job fetch, decode and write them as Parquet files, and commits
these files together with the offsets behind them. Whoever dies in between leaves files that no version of a table
names: the next round starts from the same offsets.

`plan` decides what is read, `task` does it on executors, `spark_job` brings tasks there and their answers back, `topic`
commits a topic's round, `driver` runs rounds, `reporting` is who is told.
"""
