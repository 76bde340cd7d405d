"""Schemas of tables: infer one from a topic, check one against a topic, and compare two versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient
from chronik.errors import ConfigError
from chronik.formats.framing import split_frames
from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.landing.format_decision import FormatVotes, count_value_formats
from chronik.pipeline.landing.sampling import SAMPLE_RECORDS_MAX, sample_records
from chronik.pipeline.records.columns import RecordColumns
from chronik.pipeline.registry_access import find_registry
from chronik.pipeline.source.offset_resolver import OffsetResolver
from chronik.pipeline.source.options import IsolationLevel, ReadSettings
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.layout import ERROR, RESCUED, TableKind, initial_schema
from chronik.pipeline.tables.values.data_format import JSON_VALUES, DataFormat, RecordFormat
from chronik.pipeline.tables.values.field_statistics import DetectedType
from chronik.pipeline.tables.values.row_decoder import RowDecoder, infer_record_statistics
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


@dataclass(frozen=True, slots=True)
class TopicSample:
    """A sample of a topic's records, and what decodes their values."""

    topic: str
    records: Sequence[RecordColumns]
    format: RecordFormat = JSON_VALUES
    registry: RegistrySettings | None = None

    @property
    def count(self) -> int:
        """Number of records."""
        return sum(map(len, self.records))


def read_sample(
    bootstrap: Bootstrap,
    topic: str,
    records_max: int = SAMPLE_RECORDS_MAX,
    registry: RegistrySettings | None = None,
    *,
    timeout_s: float = 30.0,
) -> TopicSample:
    """Read a sample of a topic's records from all partitions, and decide the format of their values as landing does.

    Schemas come from `registry`, or else from that of the brokers.

    Raises:
        ConfigError: The values are neither JSON objects nor name schemas that the registry has.
        ClientError, KafkaError: The topic cannot be read.
        RegistryUnavailableError, RegistryRequestError: The registry does not say which schemas it has.
    """
    with ClusterClient(bootstrap, client_id=CLIENT_ID, timeout_s=timeout_s) as cluster:
        offsets = OffsetResolver(cluster, IsolationLevel.READ_COMMITTED)
        ends = offsets.fetch_latest_offsets(cluster.retry(lambda: cluster.partitions(topic)))
        starts = offsets.fetch_earliest_offsets(ends)
        ranges = [PartitionRange(each.partition, starts[each], end) for each, end in ends.items() if starts[each] < end]
        read = ReadSettings(bootstrap, isolation=IsolationLevel.READ_COMMITTED)
        records = list(sample_records(topic, ranges, read, records_max))
        if any(_names_schemas(each) for each in records):
            registry = find_registry(registry, cluster)
    votes = count_value_formats(records, registry)
    format = votes.decide() if votes.count else DataFormat.JSON
    if format is DataFormat.RAW and not votes.has_json:
        raise ConfigError(f"topic {topic}: {_describe_raw_values(votes, registry)}")
    if format.value_format is None:
        return TopicSample(topic, records)
    return TopicSample(topic, records, RecordFormat(format), registry)


def _names_schemas(records: RecordColumns) -> bool:
    assert records.value is not None, "values are read"
    return bool(split_frames(records.value, records.headers).groups)


def _describe_raw_values(votes: FormatVotes, registry: RegistrySettings | None) -> str:
    """Return why values have no schema, and what to do."""
    if not votes.unknown_schemas:
        return "the values are neither JSON objects nor name a schema; land them with --format raw, without a schema"
    if registry is None:
        return "the values seem to name schemas, but the brokers report no schema registry: set its URL with --registry"
    (key, _), *_ = votes.unknown_schemas.most_common(1)
    name = "id" if isinstance(key, int) else "GUID"
    return (
        f"the values name schemas that the registry {registry.display_url} does not have, such as {name} {key}: set "
        "the writers' registry with --registry"
    )


def infer_schema(sample: TopicSample, detect: Iterable[DetectedType] = ()) -> TableSchema:
    """Return a schema with the columns that landing would create for a sample of a topic's records.

    For typed values, they are the union of the types of the writers. `detect` are the types to detect in JSON strings.

    Raises:
        ConfigError: Types are to be detected in values that have types.
        RegistryUnavailableError, RegistryRequestError: The registry does not say which schemas it has.
    """
    is_typed = sample.format.is_typed
    if is_typed and list(detect):
        raise ConfigError(f"topic {sample.topic}: the values are {sample.format} and have types; remove --detect")
    table = initial_schema(TableKind.DECODED, is_typed=is_typed)
    decoder = RowDecoder(INFERRED, table, format=sample.format, registry=sample.registry)
    plan = plan_new_columns(INFERRED, table, infer_record_statistics(decoder, sample.records), detect)
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


def check_values(schema: TableSchema, sample: TopicSample) -> SchemaCheck:
    """Decode a sample of a topic's records with a schema.

    Raises:
        ConfigError: A format or time zone in the schema is invalid.
        RegistryUnavailableError, RegistryRequestError: The registry does not say which schemas it has.
    """
    table = pa.schema([*(column.to_field() for column in schema.columns), pa.field(RESCUED, pa.string())])
    decoder = RowDecoder(schema, table, format=sample.format, registry=sample.registry)
    errors, misfits, rescued = Counter[str](), Counter[str](), 0
    nulls = dict.fromkeys((column.name for column in schema.columns), 0)
    for records in sample.records:
        for decoded in decoder.decode_records(0, records):
            if decoded.dead_letters is not None:
                errors.update(decoded.dead_letters[ERROR].to_pylist())
            misfits += decoded.misfits
            for name in nulls:
                nulls[name] += decoded.rows[name].null_count
            rescued += len(decoded.rows[RESCUED]) - decoded.rows[RESCUED].null_count
    return SchemaCheck(
        records=sample.count,
        dead_letters=errors.total(),
        errors=tuple(text for text, _ in errors.most_common(ERRORS_SHOWN)),
        misfits=dict(misfits),
        nulls=nulls,
        rescued=rescued,
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
