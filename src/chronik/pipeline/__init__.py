"""The data pipeline between topics and Delta tables: the Spark source and sink, and the jobs built on them.

`records` converts record batches to Arrow columns, and `tables` defines the tables. `source` and `sink` read and write
topics from Spark. `spark` starts sessions and runs tasks. The jobs are `landing` (topics into tables), `query` (SQL
over topics and tables), `maintenance` (of tables) and `audit` (consistency checks); `journal` records the progress of
landing. Only modules that use PySpark import it.
"""

from typing import Final

CLIENT_ID: Final = "chronik-pipeline"
"""Kafka client id of the pipeline's connections."""
