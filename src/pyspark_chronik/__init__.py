"""The Spark data source `chronik`, which Spark discovers by the name of this module, without registration.

    spark.read.format("chronik").option("bootstrap.servers", "localhost:9092").option("subscribe", "events").load()

Every Python worker of Spark imports this module to discover data sources, so it imports nothing else until it is used.
The options are listed in `chronik.pipeline.source.options` and `chronik.pipeline.sink.writer`. Errors are reported with
the message first, then the traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from chronik.pipeline.source.typed_options import TypedColumns

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):  # type: ignore[misc]
    """The Spark data source `chronik`: reader and writer factories for batch and streaming queries."""

    _types: TypedColumns | None = None
    _has_types = False

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        if any(name.lower() == "clientconfig" for name in options):
            from chronik.pipeline.source.client_config import add_client_config
            from chronik.pipeline.source.error_reports import MessageFirst

            with MessageFirst():
                self.options = add_client_config(options)

    @classmethod
    def name(cls) -> str:
        return "chronik"

    def schema(self) -> StructType | str:
        from chronik.pipeline.source.error_reports import MessageFirst
        from chronik.pipeline.source.option_names import check_source_option_names
        from chronik.pipeline.source.options import select_source_columns
        from chronik.pipeline.source.schema import spark_schema

        with MessageFirst():
            check_source_option_names(self.options)
            return spark_schema(select_source_columns(self.options), self._resolve_types())

    def reader(self, schema: StructType) -> DataSourceReader:
        from chronik.pipeline.source.error_reports import MessageFirst
        from chronik.pipeline.source.options import parse_source_options
        from chronik.pipeline.source.reader import ChronikReader

        with MessageFirst():
            self._check_schema(schema)
            return ChronikReader(parse_source_options(self.options, streaming=False, typed=self._resolve_types()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from chronik.pipeline.source.error_reports import MessageFirst
        from chronik.pipeline.source.options import parse_source_options
        from chronik.pipeline.source.reader import ChronikStreamReader

        with MessageFirst():
            self._check_schema(schema)
            return ChronikStreamReader(parse_source_options(self.options, streaming=True, typed=self._resolve_types()))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from chronik.pipeline.sink.writer import ChronikWriter, parse_sink_settings
        from chronik.pipeline.source.error_reports import MessageFirst

        with MessageFirst():
            return ChronikWriter(parse_sink_settings(self.options, schema, streaming=False, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from chronik.pipeline.sink.writer import ChronikStreamWriter, parse_sink_settings
        from chronik.pipeline.source.error_reports import MessageFirst

        with MessageFirst():
            return ChronikStreamWriter(parse_sink_settings(self.options, schema, streaming=True))

    def _resolve_types(self) -> TypedColumns | None:
        """Return the typed columns of a query. Spark keeps this object from planning on, so that they do not change."""
        from chronik.pipeline.source.options import resolve_source_types

        if not self._has_types:
            self._types, self._has_types = resolve_source_types(self.options), True
        return self._types

    def _check_schema(self, schema: StructType) -> None:
        """Reject a schema given by the user: its columns would be filled with the wrong values or fail in a task."""
        from chronik.pipeline.errors import SchemaError
        from chronik.pipeline.source.options import select_source_columns

        if tuple(schema.fieldNames()) != select_source_columns(self.options):
            raise SchemaError("the columns of a topic are fixed: choose among them with the option `columns`")
        if self._resolve_types() is None:
            return
        planned = self.schema()
        if not isinstance(planned, str) and planned.simpleString() != schema.simpleString():
            raise SchemaError("the types of keys and values are fixed: set them with keySchema and valueSchema")
