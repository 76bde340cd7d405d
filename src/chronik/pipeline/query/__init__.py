"""SQL over topics: what has landed and what has not yet, as one view without a gap and without a row twice.

`tokens` and `names` find out which topics a statement is about, `snapshots` fixes where the landed rows end and where
the tail does, `tail` reads the tail in tasks, `frames` makes both halves DataFrames, `failures` says in one line why
Spark refused. `views` and `sql` are what people call; `warm_daemon` is where Spark's workers come from.
"""
