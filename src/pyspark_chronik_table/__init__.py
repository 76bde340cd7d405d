"""The Spark data source `chronik_table`, which Spark discovers by the name of this module, without registration.

    CREATE TEMPORARY VIEW orders USING chronik_table OPTIONS (path '/lake/tables/orders')

Every Python worker of Spark imports this module to discover data sources, so it imports nothing else until it is used.
The options are listed in `chronik.pipeline.query.table_source`. Errors are reported with the message first, then the
traceback.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):  # type: ignore[misc]
    """The Spark data source `chronik_table`: the landed rows of a table, for batch queries."""

    @classmethod
    def name(cls) -> str:
        return "chronik_table"

    def table_options(self) -> Mapping[str, str]:
        return dict(self.options)

    def schema(self) -> StructType:
        from chronik.pipeline.query.table_source import parse_table_options
        from chronik.pipeline.source.error_reports import MessageFirst

        with MessageFirst():
            return parse_table_options(self.table_options()).read_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        from chronik.pipeline.query.table_source import TableReader, parse_table_options
        from chronik.pipeline.source.error_reports import MessageFirst

        with MessageFirst():
            return TableReader(parse_table_options(self.table_options()), schema)
