"""The reader of the Spark data source `chronik_table`, which returns the landed rows of a table.

The option `path` is the table's directory or URI. All others are storage options of a table in an object store.

The reader has no filter pushdown. Spark plans the partitions of a data source once for all references of a statement to
a view, with the filters of only one of them, so that rows of the others would be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from chronik.errors import ConfigError
from chronik.pipeline.query.landed_rows import (
    LandedScan,
    plan_landed_tasks,
    read_landed_rows,
)
from chronik.pipeline.query.spark_schema import to_spark_schema
from chronik.pipeline.source.error_reports import MessageFirst
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.layout import PARTITION
from chronik.pipeline.tables.storage import local_directory, to_absolute_root
from chronik.pipeline.tables.topic_table import SchemaConflictError

PATH_OPTION: Final = "path"


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options of the source."""

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    """Options of the object store, perhaps with credentials; never shown in messages."""

    def read_schema(self) -> StructType:
        """Return the current schema of the table.

        Raises:
            TableError, TableStorageError: The table does not exist or cannot be read.
        """
        return to_spark_schema(open_table(self.uri, self.storage_options).descriptor().schema)


def parse_table_options(options: Mapping[str, str]) -> TableOptions:
    """Parse the options of the source, whose names Spark compares without case.

    Raises:
        ConfigError: An option is missing or unknown.
    """
    given = {name.lower(): value for name, value in options.items()}
    path = given.pop(PATH_OPTION, "").rstrip("/")
    if not path:
        raise ConfigError("option path is missing: set it to the directory or the URI of a table")
    if path.startswith("file:/") and not path.startswith("file://"):
        path = "file://" + path.removeprefix("file:")  # as Hadoop writes file URIs
    uri = to_absolute_root(path)
    if given and local_directory(uri) is not None:
        raise ConfigError(f"unknown option {min(given)}: a local table has only the option {PATH_OPTION}")
    return TableOptions(uri, given)


class ScanPartition(InputPartition):  # type: ignore[misc]
    """A Spark input partition with the scan of one task."""

    def __init__(self, scan: LandedScan | None) -> None:
        super().__init__(None)
        self.scan = scan


class TableReader(DataSourceReader):  # type: ignore[misc]
    """A reader of the rows that a table has when Spark plans its partitions.

    `schema` has the columns that Spark stored when the view or the registered table was created.
    """

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        with MessageFirst():
            table = open_table(self._options.uri, self._options.storage_options).files()
            self._check_columns(table.schema)
        # Without any column, Spark could not count the rows.
        names = tuple(self._schema.fieldNames()) or (PARTITION,)
        tasks = plan_landed_tasks(table.files, range(len(table.files)))
        scans = [LandedScan(table.with_files(*(table.files[index] for index in task)), names) for task in tasks]
        return [ScanPartition(scan) for scan in scans] or [ScanPartition(None)]

    def _check_columns(self, current: pa.Schema) -> None:
        """Check that the table still has the columns of the reader. Additional columns are ignored.

        Raises:
            SchemaConflictError: A column was removed or has another type.
        """
        types = {each.name: each.dataType.simpleString() for each in to_spark_schema(current)}
        for each in self._schema:
            if types.get(each.name) != each.dataType.simpleString():
                raise SchemaConflictError(
                    f"{self._options.uri}: column {each.name} is {types.get(each.name, 'missing')} and not"
                    f" {each.dataType.simpleString()}: the table was changed; create the view or register the table"
                    " again"
                )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ScanPartition)
        scan = partition.scan
        if scan is None:
            return
        with MessageFirst():
            yield from read_landed_rows(scan, tuple(range(len(scan.table.files))))
