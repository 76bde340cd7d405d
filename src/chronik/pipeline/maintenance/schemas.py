"""Schemas of tables: infer one from a topic, check one against a topic, and compare two versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.landing.sampling import SAMPLE_RECORDS_MAX, sample_values
from chronik.pipeline.source.offset_resolver import OffsetResolver
from chronik.pipeline.source.options import IsolationLevel, ReadSettings
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.layout import RESCUED, TableKind, initial_schema
from chronik.pipeline.tables.values.field_statistics import DetectedType
from chronik.pipeline.tables.values.json_decoder import JsonDecoder
from chronik.pipeline.tables.values.row_decoder import infer_statistics
from chronik.pipeline.tables.values.schema_evolution import plan_new_columns, reads_same_values
from chronik.pipeline.tables.values.table_schema import (
    INFERRED,
    Column,
    TableSchema,
    UnknownFields,
    check_schema,
    format_path,
    restore_column_from_field,
)

ERRORS_SHOWN: Final = 3
"""Number of the most frequent decoding errors that the result of a schema check contains."""


def read_sample(
    bootstrap: Bootstrap, topic: str, records_max: int = SAMPLE_RECORDS_MAX, *, timeout_s: float = 30.0
) -> list[bytes | None]:
    """Read a sample of a topic's values, from all partitions.

    Raises:
        ClientError, KafkaError: The topic cannot be read.
    """
    with ClusterClient(bootstrap, client_id=CLIENT_ID, timeout_s=timeout_s) as cluster:
        offsets = OffsetResolver(cluster, IsolationLevel.READ_COMMITTED)
        ends = offsets.fetch_latest_offsets(cluster.retry(lambda: cluster.partitions(topic)))
        starts = offsets.fetch_earliest_offsets(ends)
    ranges = [PartitionRange(each.partition, starts[each], end) for each, end in ends.items() if starts[each] < end]
    return sample_values(topic, ranges, ReadSettings(bootstrap, isolation=IsolationLevel.READ_COMMITTED), records_max)


def infer_schema(values: Sequence[bytes | None], detect: Iterable[DetectedType] = ()) -> TableSchema:
    """Infer a schema from a sample of a topic's values. `detect` are the types to detect in JSON strings."""
    empty = initial_schema(TableKind.DECODED)
    plan = plan_new_columns(INFERRED, empty, infer_statistics(values), detect)
    return check_schema(
        TableSchema(
            tuple(restore_column_from_field(field) for field in plan.added), unknown_fields=UnknownFields.RESCUE
        )
    )


# Check


@dataclass(frozen=True, slots=True)
class SchemaCheck:
    """The result of decoding a sample of a topic's values with a schema."""

    records: int
    dead_letters: int
    errors: tuple[str, ...]
    """The most frequent errors of dead-letter records."""
    misfits: dict[str, int]
    """Number of values that do not fit their column's type, by column name."""
    nulls: dict[str, int]
    """Number of sample records without a value for the column, by column name."""
    rescued: int
    """Number of sample records with a field that is stored in `_rescued`."""

    @property
    def is_clean(self) -> bool:
        """Whether every sample record becomes a row, and every value fits its column's type."""
        return not self.dead_letters and not self.misfits


def check_values(schema: TableSchema, values: Sequence[bytes | None]) -> SchemaCheck:
    """Decode a sample of values with a schema.

    Raises:
        ConfigError: A format or time zone in the schema is invalid.
    """
    table = pa.schema([*(column.to_field() for column in schema.columns), pa.field(RESCUED, pa.string())])
    decoded = JsonDecoder(schema, table).decode(values)
    errors = Counter(decoded.errors.values())
    return SchemaCheck(
        records=len(values),
        dead_letters=len(decoded.errors),
        errors=tuple(text for text, _ in errors.most_common(ERRORS_SHOWN)),
        misfits=dict(decoded.misfits),
        nulls={column.name: decoded.columns[column.name].null_count for column in schema.columns},
        rescued=len(decoded.columns[RESCUED]) - decoded.columns[RESCUED].null_count,
    )


# Differences


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """A difference between two schemas."""

    subject: str
    """Name of the column, or of the setting."""
    before: str | None
    """Description in the old schema; None if it did not exist."""
    after: str | None
    """Description in the new schema; None if it is not declared any more."""
    needs_rebuild: bool = False
    """Whether only a rebuild of the table can apply it."""


def compare_schemas(before: TableSchema, after: TableSchema, table: pa.Schema | None = None) -> list[SchemaDifference]:
    """Return the differences between two schemas. `table` gives the types of columns that are not declared."""
    differences = [
        SchemaDifference(name, str(old), str(new))
        for name, old, new in (
            ("unknown_fields", before.unknown_fields, after.unknown_fields),
            ("invalid_values", before.invalid_values, after.invalid_values),
            ("name", before.name, after.name),
            ("comment", before.comment, after.comment),
        )
        if old != new
    ]
    differences += [
        SchemaDifference(f"property {name}", before.properties.get(name), after.properties.get(name))
        for name in sorted({*before.properties, *after.properties})
        if before.properties.get(name) != after.properties.get(name)
    ]
    known = {column.name: column for column in (before.columns if table is None else before.resolve_columns(table))}
    declared = {column.name: column for column in after.columns}
    for name, column in declared.items():
        old_column = known.get(name)
        if old_column is None:
            differences.append(SchemaDifference(name, None, describe_column(column)))
        elif describe_column(old_column) != describe_column(column):
            differences.append(
                SchemaDifference(
                    name,
                    describe_column(old_column),
                    describe_column(column),
                    needs_rebuild=not reads_same_values(old_column, column),
                )
            )
    differences += [
        SchemaDifference(column.name, describe_column(column), None)
        for column in before.columns
        if column.name not in declared
    ]
    return differences


def describe_column(column: Column) -> str:
    """Return a column's type and settings in one line."""
    words: list[Any] = [column.type_name]
    if column.path != (column.name,):
        words.append(f"from {format_path(column.path)}")
    if column.format is not None and column.type_name != column.format:
        words.append(f"format {column.format}")
    if column.zone is not None:
        words.append(f"zone {column.zone}")
    if column.required:
        words.append("required")
    if column.default is not None:
        words.append(f"default {column.default!r}")
    if column.invalid_values is not None:
        words.append(f"invalid values: {column.invalid_values}")
    return ", ".join(words)
