"""Topics become tables: the Spark source and sink, and the jobs around them. Only what uses PySpark imports it."""
