"""Helpers to write rows to Iceberg tables in a SQLite catalog, as landing would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput
from chronik.pipeline.tables.iceberg.table import IcebergTopicTable
from chronik.pipeline.tables.table_files import TableFiles, scan
from chronik.pipeline.tables.topic_table import TableFormat, TableSpec, TopicTable
from tests.pipeline.table_fixtures import SPEC, build_batch

ICEBERG_SPEC = replace(SPEC, table_format=TableFormat.ICEBERG)


def open_iceberg_table(root: Path, spec: TableSpec = ICEBERG_SPEC) -> IcebergTopicTable:
    table = open_or_create_table(f"{root}/{spec.topic}", spec)
    assert isinstance(table, IcebergTopicTable)
    return table


def write_output(table: TopicTable, *spans: PartitionRange, timestamps_ms: Sequence[int] | None = None) -> TaskOutput:
    """Write the rows of offset ranges to files, which are not committed yet."""
    descriptor = table.descriptor()
    with descriptor.writer() as writer:
        for span in spans:
            writer.write(build_batch(span, descriptor.schema, timestamps_ms=timestamps_ms))
    return TaskOutput(spans, writer.files)


def append(table: TopicTable, *spans: PartitionRange) -> None:
    table.commit([write_output(table, *spans)])


def read_positions(files: TableFiles) -> list[tuple[int, int]]:
    """Return the partitions and offsets of all rows; a duplicate row is listed twice."""
    return sorted(
        position
        for batch in scan(files, ["_partition", "_offset"])
        for position in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )


def load_iceberg(table: IcebergTopicTable) -> Any:
    """Return the table as PyIceberg loads it from the catalog."""
    return table._load()
