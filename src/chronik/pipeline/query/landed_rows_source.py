"""A Python data source for the landed rows of a table, to which Spark pushes the filters of a statement down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from chronik.pipeline.query.landed_rows import (
    FileIndices,
    LandedScan,
    build_filter,
    decode_scan,
    find_matching_files,
    plan_landed_tasks,
    read_landed_rows,
)

SCAN_OPTION: Final = "scan"


def build_landed_rows_source(source_name: str, storage_options: Mapping[str, str] | None) -> type[DataSource]:
    """Return a data source of landed rows. It contains the storage options, so that no plan shows credentials.

    The option `scan` of the source contains the table, its files and the columns.
    """

    class LandedRowsSource(DataSource):  # type: ignore[misc]
        """The data source of the landed rows of tables with the same storage options."""

        @classmethod
        def name(cls) -> str:
            return source_name

        def reader(self, schema: Any) -> DataSourceReader:
            return LandedRowsReader(decode_scan(self.options[SCAN_OPTION], storage_options))

    return LandedRowsSource


class FilesPartition(InputPartition):  # type: ignore[misc]
    """A Spark input partition with the files of one task."""

    def __init__(self, files: FileIndices) -> None:
        super().__init__(files)
        self.files = files


class LandedRowsReader(DataSourceReader):  # type: ignore[misc]
    """A reader of a table's landed rows that skips files and row groups by the filters of the statement."""

    def __init__(self, scan: LandedScan) -> None:
        self._scan = scan
        self._filters: list[Any] = []

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        """Keep the filters to skip files and row groups; Spark evaluates all of them again."""
        self._filters = filters
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        table = self._scan.table
        matching = find_matching_files(table, build_filter(table.schema, self._filters))
        return [FilesPartition(files) for files in plan_landed_tasks(table.files, matching)] or [FilesPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FilesPartition)
        where = build_filter(self._scan.table.schema, self._filters)
        yield from read_landed_rows(self._scan, partition.files, where)
