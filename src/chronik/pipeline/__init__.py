"""Topics become tables: the Spark source and sink, and the jobs around them. Only what uses PySpark imports it.

`records` and `tables` know what records and tables are, `reading` and `writing` bring records from topics and to them,
`spark` has sessions and their tasks. On these stand `landing` (topics into tables), `query` (SQL over both), `upkeep`
(of tables) and `audit` (whether all of it is right); `journal` is where a landing tells how far it is.
"""

from typing import Final

CLIENT_ID: Final = "chronik-pipeline"
"""What brokers know the pipeline by."""
