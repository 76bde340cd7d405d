"""Topic tables as Delta tables: the topic's offsets are in the transaction log, in the commits of their data files.

Each commit has one application transaction `chronik/<topic id>/<partition>` per advanced partition, whose version is
the next offset. Delta-rs would accept a decreasing version, so an attempt checks the offsets of exactly the version
that it commits onto. A lost response does no harm: the next attempt finds the offsets in the table.

Delta-rs resolves some conflicts by itself. Therefore every attempt reads the table's current version, decides what to
commit, and commits onto exactly that version; after a conflict it starts over.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Field, Schema, TableFeatures, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from chronik.pipeline.tables.as_of import AsOf
from chronik.pipeline.tables.commit_plan import (
    SchemaChangedError,
    TaskOutput,
    WrittenFile,
    WrittenFilesLostError,
    plan_commit,
)
from chronik.pipeline.tables.conditional_writes import require_conditional_writes
from chronik.pipeline.tables.delta.statistics import read_file_statistics
from chronik.pipeline.tables.delta.table_versions import check_data_files, find_version
from chronik.pipeline.tables.delta.transaction_log import (
    build_entry_path,
    check_log_entries,
    read_log_extent,
    sync_log_entry,
)
from chronik.pipeline.tables.delta.version_cache import VersionCache
from chronik.pipeline.tables.layout import (
    OFFSET,
    PARTITION,
    RESCUED,
    TIMESTAMP,
    TableKind,
    initial_schema,
)
from chronik.pipeline.tables.object_store_files import build_uri_error
from chronik.pipeline.tables.parquet import format_partition_value
from chronik.pipeline.tables.storage import (
    TableStorage,
    check_table_uri,
    get_parent_uri,
    local_directory,
    make_directory_durably,
)
from chronik.pipeline.tables.storage_errors import (
    TableStorageAccessError,
    TableStorageError,
    build_storage_error,
    convert_storage_errors,
    find_known_cause,
    summarize_storage_error,
)
from chronik.pipeline.tables.storage_options import resolve_storage_options, to_delta_options
from chronik.pipeline.tables.table_files import (
    COMMIT_HOURS_MAX,
    UNKNOWN_BOUNDS,
    LiveFile,
    TableDescriptor,
    TableFiles,
    find_uncommittable_files,
)
from chronik.pipeline.tables.table_properties import (
    DECODING_RULES_PROPERTY,
    REBUILT_VERSION,
    REGISTRY_URL,
    SCHEMA_PROPERTY,
    SCHEMA_VERSION_PROPERTY,
    build_schema_properties,
    build_spec_properties,
    describe_table_spec,
    find_changed_fields,
    find_missing_columns,
    get_decoding_rules,
    read_decoding_rules,
    read_record_format,
    read_registry,
    read_schema_versions,
    read_spec,
)
from chronik.pipeline.tables.table_statistics import (
    MaintenanceKind,
    MaintenanceRecord,
    TableStatistics,
    decode_maintenance_record,
    encode_maintenance_record,
)
from chronik.pipeline.tables.topic_table import (
    CommitResult,
    SequenceConflictError,
    TableCommitError,
    TableError,
    TableFormat,
    TableMismatchError,
    TableMissingError,
    TableSnapshot,
    TableSpec,
)
from chronik.pipeline.tables.values.column_names import PATH_KEY
from chronik.pipeline.tables.values.field_statistics import FieldStatistics
from chronik.pipeline.tables.values.json_decoder import check_codecs
from chronik.pipeline.tables.values.schema_evolution import (
    EvolvedSchema,
    has_unchanged_columns,
    plan_new_columns,
)
from chronik.pipeline.tables.values.sql_types import FORMAT_KEY
from chronik.pipeline.tables.values.table_schema import (
    COMMENT_KEY,
    INFERRED,
    SETTINGS_KEY,
    Column,
    TableSchema,
    build_schema_document,
    parse_schema_document,
)
from chronik.wording import pluralize

CONFLICTS_MAX = 100
"""Maximum number of conflicts with other writers per commit, which only heavy contention reaches."""

FAILURES_MAX = 3
"""Maximum number of failed attempts per commit, not counting conflicts. An error that occurs three times, such as a
full disk or a missing permission, is considered permanent."""

RETRY_DELAY_SECONDS_MAX = 0.2

WITHOUT_RETRIES = CommitProperties(max_commit_retries=0)
"""Commit properties that disable delta-rs's retries, so that a commit fails if the table has changed."""

Result = TypeVar("Result")

CHECKPOINT_INTERVAL = "20"
"""Number of commits between checkpoints of the Delta log. Every commit reads the log from the last checkpoint on; with
delta-rs's default of 100, that would take most of the commit's time."""

TIMESTAMP_NTZ_FEATURE, VARIANT_FEATURE = "timestampNtz", "variantType"
HARMLESS_READER_FEATURES = frozenset({TIMESTAMP_NTZ_FEATURE, VARIANT_FEATURE})
"""Reader features with which the data files contain exactly the table's rows. Delta-rs adds `variantType` together with
`timestampNtz`; only columns of that type are not supported."""
MAINTENANCE_RECORD = "chronik.maintenance"
"""Key of the maintenance record in the commit info of a commit."""
LOG_RETENTION_PROPERTY = "delta.logRetentionDuration"
"""Table property for how long entries of the transaction log are kept. Delta's default is 30 days."""
TRANSACTION_EXPIRY_PROPERTY = "delta.setTransactionRetentionDuration"
"""Table property that expires application transactions, which store the next offsets."""


def open_delta(uri: str, storage_options: Mapping[str, str] | None, version: int | None = None) -> DeltaTable:
    """Open the current version of a table, or the given one.

    Raises:
        ConfigError, TableMissingError, TornLogError: The URI is invalid, or there is no usable table.
        DeltaError: The transaction log is damaged.
    """
    check_table_uri(uri)
    check_log_entries(uri)
    with convert_storage_errors(uri, storage_options) if local_directory(uri) is None else nullcontext():
        try:
            return DeltaTable(uri, version, storage_options=to_delta_options(storage_options))
        except TableNotFoundError as error:
            if "Unknown scheme" in str(error):
                raise build_uri_error(uri, error) from None
            raise TableMissingError(f"no table at {uri}") from error


@contextmanager
def convert_delta_errors(uri: str) -> Iterator[None]:
    """Convert DeltaErrors to TableErrors, because callers do not depend on delta-rs."""
    try:
        yield
    except DeltaError as error:
        known = find_known_cause(uri, error) if local_directory(uri) is None else None
        raise known or TableError(f"{uri}: {summarize_storage_error(str(error))}") from error
    except OSError as error:
        if local_directory(uri) is not None or isinstance(error, TableStorageError):
            raise
        raise build_storage_error(uri, error) from error


def get_delta_arrow_schema(table: DeltaTable) -> pa.Schema:
    """Return the Arrow schema of a Delta table."""
    return pa.schema(table.schema().to_arrow())


def list_live_files(table: DeltaTable, actions: pa.Table | None = None) -> tuple[LiveFile, ...]:
    """Return the data files of the current version. `actions` are its add actions, if they are known.

    Raises:
        TableMismatchError: The files do not contain exactly their rows (deletion vectors, column mapping).
    """
    features = _find_unsupported_features(table)
    if features:
        raise TableMismatchError(f"{table.table_uri} has unsupported Delta features: {', '.join(features)}")
    columns = table.metadata().partition_columns
    actions = pa.table(table.get_add_actions()) if actions is None else actions
    values = actions["partition"].to_pylist() if columns else [{}] * actions.num_rows
    return tuple(
        LiveFile(unquote(path), size_bytes, tuple(row[name] for name in columns), partitions, offsets, rows, written_ms)
        for path, size_bytes, row, partitions, offsets, rows, written_ms in zip(
            actions["path"].to_pylist(),
            actions["size_bytes"].to_pylist(),
            values,
            _read_column_bounds(actions, PARTITION),
            _read_column_bounds(actions, OFFSET),
            actions["num_records"].to_pylist(),
            actions["modification_time"].to_pylist(),
            strict=True,
        )
    )


def _find_unsupported_features(table: DeltaTable) -> list[str]:
    """Return the Delta features with which the rows differ from those in the data files."""
    found = set(table.protocol().reader_features or ())
    unsupported = found - HARMLESS_READER_FEATURES
    if VARIANT_FEATURE in found and _has_variant(json.loads(table.schema().to_json())):
        unsupported.add(VARIANT_FEATURE)
    # Version 2 of the protocol has column mapping without a list of features.
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        unsupported.add("columnMapping")
    return sorted(unsupported)


def _has_variant(data_type: Any) -> bool:
    """Return whether a type of a Delta schema, as JSON, is or contains `variant`."""
    if isinstance(data_type, list):
        return any(map(_has_variant, data_type))
    if isinstance(data_type, dict):
        return any(_has_variant(data_type.get(key)) for key in ("type", "fields", "elementType", "valueType"))
    return bool(data_type == "variant")


def _read_column_bounds(actions: pa.Table, name: str) -> list[tuple[int, int]]:
    """Return the minimum and maximum of a column in each file that has statistics."""
    found = []
    for bound, default in zip(("min", "max"), UNKNOWN_BOUNDS, strict=True):
        column = _get_bounds_column(actions, bound, name)
        numbers = [None] * actions.num_rows if column is None else column.to_pylist()
        found.append([default if number is None else number for number in numbers])
    return list(zip(*found, strict=True))


def _get_bounds_column(actions: pa.Table, bound: str, name: str) -> pa.ChunkedArray | None:
    """Return the bounds (`min` or `max`) of a column in each file, or None if no file has any."""
    index = actions.schema.get_field_index(bound)
    has_stats = index >= 0 and actions.schema.field(index).type.get_field_index(name) >= 0
    return pc.struct_field(actions[bound], name) if has_stats else None


def read_timestamp_bounds(table: DeltaTable) -> tuple[int | None, int | None]:
    """Return the lowest and highest record timestamp in milliseconds, or None where no file has statistics."""
    actions = pa.table(table.get_add_actions())
    columns = [_get_bounds_column(actions, bound, TIMESTAMP) for bound in ("min", "max")]
    lowest, highest = (
        None if column is None else compute(column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())).as_py()
        for column, compute in zip(columns, (pc.min, pc.max), strict=True)
    )
    return lowest, highest


def commit_durably(
    uri: str, table: DeltaTable, attempt: Callable[[DeltaTable], Result], *, is_synced: bool = False
) -> Result:
    """Run `attempt`, which commits atomically to the table, and fsync the transaction log before and after it.

    `is_synced` means that this process has already synced the current version.
    """
    version = table.version()
    if not is_synced:
        sync_log_entry(uri, version)
    result = attempt(table)
    sync_log_entry(uri, version + 1)
    return result


class CommitAttempts:
    """A counter of failed commit attempts, with a random delay between attempts."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._conflicts = self._failures = 0

    @property
    def is_outcome_unknown(self) -> bool:
        """Whether a failed attempt may have been committed. Conflicts are never committed."""
        return self._failures > 0

    def record_failure(self, error: Exception) -> None:
        """Record a failed attempt and pause before the next one.

        Raises:
            TableCommitError: There were too many failures.
        """
        if isinstance(error, CommitFailedError):
            self._conflicts += 1
        else:
            self._failures += 1
        if self._conflicts >= CONFLICTS_MAX or self._failures >= FAILURES_MAX:
            raise TableCommitError(_describe_failure(self._uri, error)) from error
        contention = min(1.0, (self._conflicts + self._failures) / 10)
        time.sleep(random.uniform(0, RETRY_DELAY_SECONDS_MAX * contention))


def _describe_failure(uri: str, error: Exception) -> str:
    if isinstance(error, TableStorageError):
        return str(error)
    known = find_known_cause(uri, error) if local_directory(uri) is None else None
    return str(known) if known is not None else f"{uri}: {summarize_storage_error(str(error))}"


class DeltaTopicTable:
    """A `TopicTable` stored as a Delta table."""

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        """Open an existing table.

        Raises:
            TableMissingError: There is no table at the URI.
        """
        self.uri = uri
        self._given_options = storage_options
        self._storage: tuple[Mapping[str, str], TableStorage] | None = None
        self._cache = VersionCache(uri, self._open_current)
        with convert_delta_errors(uri):
            self._configuration = self._open_current().metadata().configuration

    @property
    def _storage_options(self) -> Mapping[str, str]:
        """The current options. Credentials in a profile file may be renewed while the table is open."""
        return resolve_storage_options(self.uri, self._given_options)

    @property
    def storage(self) -> TableStorage:
        options = self._storage_options
        if self._storage is None or self._storage[0] != options:
            self._storage = options, TableStorage(self.uri, options)
        return self._storage[1]

    @classmethod
    def open_or_create(
        cls,
        uri: str,
        spec: TableSpec,
        storage_options: Mapping[str, str] | None = None,
        schema: TableSchema | None = None,
    ) -> DeltaTopicTable:
        """Open a table, or create it if it does not exist. A new table gets the declared schema, if any.

        Raises:
            TableMismatchError: The existing table has another topic, kind or partitioning.
        """
        try:
            found = cls(uri, storage_options)
        except TableMissingError:
            _create_table(uri, spec, resolve_storage_options(uri, storage_options), schema)
            found = cls(uri, storage_options)
            if schema is not None and found.spec == spec and not all(map(_is_creatable, schema.columns)):
                found.set_schema(schema)
        if found.spec != spec:
            raise TableMismatchError(
                f"{uri} was created for {describe_table_spec(found.spec)}, not for {describe_table_spec(spec)}"
            )
        found._upgrade_decoding_rules()
        return found

    def _upgrade_decoding_rules(self) -> None:
        """Upgrade the version of the decoding rules stored in the table to the current version.

        A driver with older rules then fails at its next commit. Otherwise a record could become both a row and a
        dead-letter record, or neither.
        """

        def attempt(table: DeltaTable) -> None:
            if self._read_decoding_rules_version(table) < self._decoding_rules:
                table.alter.set_table_properties(
                    {DECODING_RULES_PROPERTY: str(self._decoding_rules)},
                    raise_if_not_exists=False,
                    commit_properties=WITHOUT_RETRIES,
                )

        if self._read_decoding_rules_version(self._open_current()) < self._decoding_rules:
            self._commit_with_retries(attempt)

    @property
    def _decoding_rules(self) -> int:
        return get_decoding_rules(read_record_format(self._configuration))

    def _read_decoding_rules_version(self, table: DeltaTable) -> int:
        return read_decoding_rules(self.uri, table.metadata().configuration)

    @cached_property
    def spec(self) -> TableSpec:
        found = self._configuration
        if TRANSACTION_EXPIRY_PROPERTY in found:
            raise TableMismatchError(
                f"{self.uri} sets {TRANSACTION_EXPIRY_PROPERTY}, which would expire the landed offsets: unset it"
            )
        return read_spec(self.uri, found, TableFormat.DELTA)

    # Reading

    def snapshot(self, as_of: AsOf | None = None) -> TableSnapshot:
        with convert_delta_errors(self.uri):
            table = self._open_current() if as_of is None else self._open_version(as_of)
            actions = pa.table(table.get_add_actions())
            descriptor = self._build_descriptor(table)
            return TableSnapshot(
                version=table.version(),
                spec=self.spec,
                next_offsets=self._read_next_offsets(table),
                file_uris=tuple(table.file_uris()),
                descriptor=descriptor,
                live_files=list_live_files(table, actions),
                statistics=read_file_statistics(actions, descriptor.schema, descriptor.partition_by),
            )

    def _open_version(self, as_of: AsOf) -> DeltaTable:
        """Open the version as of a point in time, and check that it has all its files."""
        current = int(self._open_current().version())
        version = find_version(self.uri, self.storage, as_of, current)
        check_data_files(self.uri, self.storage, version, current, self._list_paths)
        return open_delta(self.uri, self._storage_options, version)

    def _list_paths(self, version: int) -> list[str]:
        actions = pa.table(open_delta(self.uri, self._storage_options, version).get_add_actions())
        return [unquote(path) for path in actions["path"].to_pylist()]

    def next_offsets(self) -> dict[int, int]:
        with convert_delta_errors(self.uri):
            return self._read_cached_next_offsets(self._open_cached())

    def descriptor(self) -> TableDescriptor:
        with convert_delta_errors(self.uri):
            return self._build_descriptor(self._open_cached())

    def files(self) -> TableFiles:
        with convert_delta_errors(self.uri):
            table = self._open_current()
            return self._build_descriptor(table).with_files(*list_live_files(table))

    def _build_descriptor(self, table: DeltaTable) -> TableDescriptor:
        columns = tuple(table.metadata().partition_columns)
        return TableDescriptor(
            self.uri,
            get_delta_arrow_schema(table),
            columns,
            self._storage_options,
            _read_value_schema(table),
            _read_schema_version(table),
            format=read_record_format(table.metadata().configuration),
            registry=read_registry(table.metadata().configuration),
        )

    # Appending

    def commit(self, landed: Sequence[TaskOutput], written_with: pa.Schema | None = None) -> CommitResult:
        # Dead-letter records are rare: without gaps, their table would need a commit for every range without any.
        gaps = self.spec.kind is TableKind.DEAD_LETTERS
        partitions = {span.partition for each in landed for span in each.ranges}
        next_offsets: dict[int, int] = {}

        def attempt(table: DeltaTable) -> CommitResult:
            self._check_written_with(table, written_with)
            next_offsets.clear()
            next_offsets.update(self._read_cached_next_offsets(table))
            before = {each: next_offsets[each] for each in partitions if each in next_offsets}
            choice = plan_commit(landed, before, allow_gaps=gaps)
            next_offsets.update(choice.next_offsets)
            if choice.new_outputs:
                files = [file for each in choice.new_outputs for file in each.files]
                self._append(table, files, self._build_transactions(table, choice.next_offsets))
                table.update_incremental()
            rows = sum(each.rows for each in choice.new_outputs)
            return CommitResult(table.version(), before | choice.next_offsets, rows, choice.committed_outputs)

        return self._commit_with_retries(attempt, next_offsets)

    def append_in_sequence(
        self, files: Sequence[WrittenFile], sequence: str, number: int, written_with: pa.Schema | None = None
    ) -> None:
        def attempt(table: DeltaTable) -> None:
            self._check_written_with(table, written_with)
            expected = self._read_next_sequence_number(table, sequence)
            if number != expected:
                raise SequenceConflictError(
                    f"{self.uri}: the next number of sequence {sequence} is {expected}, not {number}"
                )
            self._append(table, files, [Transaction(self._build_sequence_app_id(sequence), number)])

        self._commit_with_retries(attempt)

    def _check_written_with(self, table: DeltaTable, written_with: pa.Schema | None) -> None:
        """Check that files written with this schema and this driver's decoding rules may be appended."""
        self._read_decoding_rules_version(table)
        if written_with is not None and not has_unchanged_columns(get_delta_arrow_schema(table), written_with):
            raise SchemaChangedError(f"{self.uri}: columns were changed, or the table was rebuilt")

    def next_sequence_number(self, sequence: str) -> int:
        with convert_delta_errors(self.uri):
            return self._read_next_sequence_number(self._open_cached(), sequence)

    def add_columns(self, unknown_fields: FieldStatistics) -> EvolvedSchema:
        def attempt(table: DeltaTable) -> EvolvedSchema:
            plan = plan_new_columns(_read_value_schema(table), get_delta_arrow_schema(table), unknown_fields)
            if plan.added:
                table = self._enable_timestamps_without_zone(table, plan.added)
                fields_added = [Field.from_arrow(field) for field in plan.added]
                table.alter.add_columns(fields_added, commit_properties=WITHOUT_RETRIES)
                table = self._open_current()
            return EvolvedSchema(get_delta_arrow_schema(table), plan.rejected)

        return self._commit_with_retries(attempt)

    def set_schema(self, schema: TableSchema) -> int:
        check_codecs(schema, self.spec.partitioning.columns)

        def attempt(table: DeltaTable) -> int:
            # Each commit leaves a valid table, and a call after a crash completes the rest.
            missing = find_missing_columns(self.uri, schema, get_delta_arrow_schema(table))
            if missing:
                fields = [column.to_field() for column in missing]
                table = self._enable_timestamps_without_zone(table, fields)
                added = [Field.from_arrow(field) for field in fields]
                table.alter.add_columns(added, commit_properties=WITHOUT_RETRIES)
                table = self._open_synced()
            for field in find_changed_fields(schema, get_delta_arrow_schema(table)):
                table.alter.set_column_metadata(
                    field.name, _build_field_metadata(field), commit_properties=WITHOUT_RETRIES
                )
                table = self._open_synced()
            return self._store_schema(self._set_name_and_comment(table, schema), schema)

        return self._commit_with_retries(attempt)

    def set_registry_url(self, url: str) -> None:
        def attempt(table: DeltaTable) -> None:
            if table.metadata().configuration.get(REGISTRY_URL) != url:
                table.alter.set_table_properties(
                    {REGISTRY_URL: url}, raise_if_not_exists=False, commit_properties=WITHOUT_RETRIES
                )

        with convert_delta_errors(self.uri):
            is_known = self._open_current().metadata().configuration.get(REGISTRY_URL) == url
        if not is_known:
            self._commit_with_retries(attempt)

    def enable_features(self, columns: pa.Schema) -> None:
        def attempt(table: DeltaTable) -> None:
            self._enable_timestamps_without_zone(table, columns)

        if any(map(_has_timestamp_without_zone, columns.types)):
            self._commit_with_retries(attempt)

    def _enable_timestamps_without_zone(self, table: DeltaTable, columns: Iterable[pa.Field]) -> DeltaTable:
        """Enable the Delta feature that columns need, before they are added, and return the current version.

        Delta-rs does that with a new table or column, but not for timestamps in maps, and not when a commit replaces
        the schema. Without the feature, the table could not be opened again.
        """
        is_enabled = TIMESTAMP_NTZ_FEATURE in (table.protocol().writer_features or ())
        if is_enabled or not any(_has_timestamp_without_zone(each.type) for each in columns):
            return table
        table.alter.add_feature(
            TableFeatures.TimestampWithoutTimezone,
            allow_protocol_versions_increase=True,
            commit_properties=WITHOUT_RETRIES,
        )
        return self._open_synced()

    def _store_schema(self, table: DeltaTable, schema: TableSchema) -> int:
        """Store the declared schema in the table properties unless they have it, and return its version."""
        version, known = _read_declared_schema(table)
        if version == 0 or known != schema:
            version += 1
        if version != _read_stored_version(table):
            table.alter.set_table_properties(
                build_schema_properties(schema, version), raise_if_not_exists=False, commit_properties=WITHOUT_RETRIES
            )
            self._open_synced()
        return version

    def _set_name_and_comment(self, table: DeltaTable, schema: TableSchema) -> DeltaTable:
        """Set the table's name and description to those of a schema, and return the current version.

        What another tool has set stays, unless the schema has a name or a comment itself.
        """
        metadata = table.metadata()
        earlier = _read_schema_versions(table).values()
        is_named = metadata.name in {each.name for each in earlier}
        is_commented = metadata.description in {each.comment for each in earlier}
        name = schema.name or (self.spec.topic if is_named else None)
        if name is not None and name != metadata.name:
            table.alter.set_table_name(name, commit_properties=WITHOUT_RETRIES)
            table = self._open_synced()
        comment = schema.comment or ("" if is_commented else None)
        if comment is not None and comment != (metadata.description or ""):
            table.alter.set_table_description(comment, commit_properties=WITHOUT_RETRIES)
            table = self._open_synced()
        return table

    def schema_versions(self) -> dict[int, TableSchema]:
        with convert_delta_errors(self.uri):
            return _read_schema_versions(self._open_current())

    def repair_offsets(self, *, lands_again: bool) -> dict[int, int]:
        """Return the next offsets: a restored Delta table has the transactions, and so the offsets, of its rows."""
        return self.next_offsets()

    # Maintenance

    def statistics(self) -> TableStatistics:
        with convert_delta_errors(self.uri):
            table = self._open_current()
            lowest, highest = read_timestamp_bounds(table)
            log = read_log_extent(self.storage, table.version())
            return TableStatistics(
                format="delta",
                version=table.version(),
                versions_kept=log.versions_kept,
                metadata_files=log.entries_since_checkpoint,
                created_ms=table.metadata().created_time or 0,
                files=list_live_files(table),
                oldest_data_ms=lowest,
                newest_data_ms=highest,
                last_compaction=self._read_maintenance_record(table, MaintenanceKind.COMPACTION),
                last_vacuum=self._read_maintenance_record(table, MaintenanceKind.VACUUM),
                last_rebuild=self._read_maintenance_record(table, MaintenanceKind.REBUILD),
            )

    def _read_maintenance_record(self, table: DeltaTable, kind: MaintenanceKind) -> MaintenanceRecord | None:
        """Return the last record of a kind, or None if the log does not contain its commit any more."""
        version = table.transaction_version(self._build_maintenance_app_id(kind))
        if version is None:
            return None
        try:
            with self.storage.filesystem.open_input_file(self.storage.full_path(build_entry_path(version))) as entry:
                actions = [json.loads(line) for line in entry.read().splitlines()]
        except FileNotFoundError:
            return None
        texts = [action["commitInfo"].get(MAINTENANCE_RECORD) for action in actions if "commitInfo" in action]
        return next((decode_maintenance_record(text) for text in texts if text is not None), None)

    def record_maintenance(self, record: MaintenanceRecord) -> None:
        def attempt(table: DeltaTable) -> None:
            table.create_write_transaction(
                [],
                mode="append",
                schema=table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=self._build_maintenance_properties(table, record),
            )

        self._commit_with_retries(attempt)

    def _build_maintenance_properties(self, table: DeltaTable, record: MaintenanceRecord | None) -> CommitProperties:
        """Return the properties of a commit onto this version, with a record in it and with the version to find it."""
        if record is None:
            return WITHOUT_RETRIES
        return CommitProperties(
            max_commit_retries=0,
            custom_metadata={MAINTENANCE_RECORD: encode_maintenance_record(record)},
            app_transactions=[Transaction(self._build_maintenance_app_id(record.kind), table.version() + 1)],
        )

    def replace_files(
        self,
        removed: Sequence[LiveFile],
        written: Sequence[WrittenFile],
        *,
        data_change: bool,
        record: MaintenanceRecord | None = None,
    ) -> bool:
        attempts = CommitAttempts(self.uri)

        def attempt(table: DeltaTable) -> None:
            columns = table.metadata().partition_columns
            actions = [_build_add_action(file, data_change) for file in written]
            actions += [_build_remove_action(file, columns, data_change) for file in removed]
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table.schema(),
                partition_by=columns,
                commit_properties=self._build_maintenance_properties(table, record),
            )

        self._require_conditional_writes()
        while True:
            with convert_delta_errors(self.uri):
                table = self._open_current()
                live = {file.path for file in list_live_files(table)}
            # A commit adds all of them. If only some are left, another commit has replaced the others since.
            if any(file.path in live for file in written):
                return True  # by an attempt whose response was lost
            is_replaced = not all(file.path in live for file in removed)
            if is_replaced or find_uncommittable_files(self.storage, written):
                if (
                    not attempts.is_outcome_unknown
                ):  # otherwise earlier versions may contain them: leave them for a vacuum
                    self.storage.discard_files(file.path for file in written)
                return False
            try:
                commit_durably(self.uri, table, attempt)
                return True
            except (CommitFailedError, DeltaError, OSError) as error:
                attempts.record_failure(error)

    def prepare_columns(self, target: TableDescriptor, extended: TableDescriptor | None = None) -> TableDescriptor:
        """Return `target`: Delta tables have no ids of columns."""
        return target

    def replace_rows(
        self, before: TableSnapshot, written: Sequence[WrittenFile], target: TableDescriptor
    ) -> int | None:
        attempts = CommitAttempts(self.uri)
        paths = {file.path for file in written}
        while True:
            with convert_delta_errors(self.uri):
                table = self._open_current()
            if table.version() != before.version:
                with convert_delta_errors(self.uri):
                    live = {file.path for file in list_live_files(table)}
                if not paths & live:
                    return None
                break  # committed by an attempt whose response was lost
            self._check_files_exist(written)
            try:
                commit_durably(self.uri, table, lambda table: self._overwrite(table, written, target))
                break
            except (CommitFailedError, DeltaError, OSError) as error:
                attempts.record_failure(error)
        self._configuration = self._open_current().metadata().configuration
        if target.value_schema != INFERRED:
            self.set_schema(target.value_schema)
        else:
            self._remove_declared_schema()
        return int(self._open_current().version())

    def _overwrite(self, table: DeltaTable, written: Sequence[WrittenFile], target: TableDescriptor) -> None:
        table.create_write_transaction(
            [_build_add_action(file) for file in written],
            mode="overwrite",
            schema=Schema.from_arrow(_mark_as_rebuilt(table, target)),
            partition_by=list(target.partition_by),
            commit_properties=WITHOUT_RETRIES,
        )

    def _remove_declared_schema(self) -> None:
        """Remove the declared schema, so that the table infers its columns again."""

        def attempt(table: DeltaTable) -> None:
            table = self._set_name_and_comment(table, INFERRED)
            if _read_declared_schema(table)[0]:
                self._store_schema(table, INFERRED)

        self._commit_with_retries(attempt)

    def vacuum_files(self, hours: int, *, orphans: bool, dry_run: bool = False) -> list[str]:
        with convert_delta_errors(self.uri):
            table = self._open_current()
            listed = table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=orphans)
            # delta-rs also lists removed files that are deleted already, as long as the log contains them.
            existing = list(self.storage.get_modification_times(listed))
            if existing and not dry_run:
                self._require_conditional_writes()
                before = table.version()
                table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=orphans)
                # The vacuum writes log entries at its start and end.
                for version in range(before + 1, self._open_current().version() + 1):
                    sync_log_entry(self.uri, version)
            return existing

    def abort_uploads(self, hours: int, *, dry_run: bool = False) -> list[str]:
        return self.storage.abort_uploads(time.time() - hours * 3600, dry_run=dry_run)

    def expire_versions(self, hours: int) -> int:
        retention = f"interval {hours} hours"

        def attempt(table: DeltaTable) -> None:
            if table.metadata().configuration.get(LOG_RETENTION_PROPERTY) != retention:
                table.alter.set_table_properties({LOG_RETENTION_PROPERTY: retention}, commit_properties=WITHOUT_RETRIES)

        with convert_delta_errors(self.uri):
            table = self._open_current()
            kept = read_log_extent(self.storage, table.version()).versions_kept
        if table.metadata().configuration.get(LOG_RETENTION_PROPERTY) != retention:
            self._commit_with_retries(attempt)  # with the new retention, delta-rs expires versions after every commit
            kept += 1
        with convert_delta_errors(self.uri):
            table = self._open_current()
            table.cleanup_metadata()
            return max(0, kept - read_log_extent(self.storage, table.version()).versions_kept)

    def compact_metadata(self) -> None:
        with convert_delta_errors(self.uri):
            table = self._open_current()
            self._require_conditional_writes()
            table.create_checkpoint()
            sync_log_entry(self.uri, table.version())

    # Transactions

    def _append(self, table: DeltaTable, files: Sequence[WrittenFile], transactions: list[Transaction]) -> None:
        """Append files to the table; raise CommitRejectedError if a vacuum has deleted or may delete any of them."""
        self._check_files_exist(files)
        table.create_write_transaction(
            [_build_add_action(file) for file in files],
            mode="append",
            schema=table.schema(),
            partition_by=list(self.spec.partitioning.columns),
            commit_properties=CommitProperties(max_commit_retries=0, app_transactions=transactions),
        )

    def _check_files_exist(self, files: Sequence[WrittenFile]) -> None:
        """Raise WrittenFilesLostError if a vacuum has deleted or may delete any of the files."""
        lost = find_uncommittable_files(self.storage, files)
        if lost:
            message = f"{len(lost)} of {pluralize(len(files), 'file')} deleted or older than {COMMIT_HOURS_MAX} h"
            raise WrittenFilesLostError(f"{self.uri}: cannot commit: {message}, for example {lost[0]}")

    def _build_transactions(self, table: DeltaTable, moved: Mapping[int, int]) -> list[Transaction]:
        transactions = [
            Transaction(self._build_partition_app_id(number), offset) for number, offset in sorted(moved.items())
        ]
        # Transactions can be looked up but not listed, so the table also stores the number of partitions.
        count = max(moved) + 1
        if count > self._read_partition_count(table):
            transactions.append(Transaction(self._topic_key, count))
        return transactions

    def _read_next_offsets(self, table: DeltaTable) -> dict[int, int]:
        return self._look_up_next_offsets(table, range(self._read_partition_count(table)))

    def _look_up_next_offsets(self, table: DeltaTable, partitions: Iterable[int]) -> dict[int, int]:
        """Return the next offsets of the given partitions only, as each lookup takes delta-rs up to a millisecond."""
        versions = ((number, table.transaction_version(self._build_partition_app_id(number))) for number in partitions)
        return {number: version for number, version in versions if version is not None}

    def _read_cached_next_offsets(self, table: DeltaTable) -> dict[int, int]:
        found = self._cache.get_next_offsets(table)
        if found is None:
            found = self._read_next_offsets(table)
            self._cache.set_next_offsets(table, found)
        return dict(found)

    def _read_partition_count(self, table: DeltaTable) -> int:
        count = table.transaction_version(self._topic_key)
        return 0 if count is None else count

    def _read_next_sequence_number(self, table: DeltaTable, sequence: str) -> int:
        last = table.transaction_version(self._build_sequence_app_id(sequence))
        return 0 if last is None else last + 1

    @property
    def _topic_key(self) -> str:
        return f"chronik/{self.spec.topic_id}"

    def _build_partition_app_id(self, partition: int) -> str:
        return f"{self._topic_key}/{partition}"

    def _build_sequence_app_id(self, sequence: str) -> str:
        return f"{self._topic_key}/sequence/{sequence}"

    def _build_maintenance_app_id(self, kind: MaintenanceKind) -> str:
        return f"{self._topic_key}/maintenance/{kind}"

    # Commit attempts

    def _commit_with_retries(
        self, attempt: Callable[[DeltaTable], Result], next_offsets: Mapping[int, int] | None = None
    ) -> Result:
        """Commit with retries after conflicts. `next_offsets` are those of the table after a successful attempt."""
        attempts = CommitAttempts(self.uri)
        self._require_conditional_writes()
        while True:
            try:
                table = self._open_cached()
                result = commit_durably(self.uri, table, attempt, is_synced=self._cache.is_synced(table))
                self._cache.store_commit(table, self.storage)
                if next_offsets is not None:
                    self._cache.set_next_offsets(table, next_offsets)
                return result
            except TableStorageAccessError:
                self._cache.drop()
                raise  # a retry does not help, and nothing was committed
            except (CommitFailedError, DeltaError, OSError) as error:
                self._cache.drop()
                attempts.record_failure(error)
            except BaseException:
                self._cache.drop()
                raise

    def _open_cached(self) -> DeltaTable:
        """Return the current version, which is loaded only if this process does not have it."""
        return self._cache.open(self.storage, self._storage_options)

    def _require_conditional_writes(self) -> None:
        require_conditional_writes(get_parent_uri(self.uri), self._storage_options)

    def _open_current(self) -> DeltaTable:
        return open_delta(self.uri, self._storage_options)

    def _open_synced(self) -> DeltaTable:
        """Open the current version and sync its log entry, after one of several commits of an attempt."""
        table = self._open_current()
        sync_log_entry(self.uri, table.version())
        return table


def _create_table(
    uri: str, spec: TableSpec, storage_options: Mapping[str, str] | None, schema: TableSchema | None
) -> None:
    if schema is not None:
        check_codecs(schema, spec.partitioning.columns)
        spec.partitioning.check_columns(pa.schema([column.to_field() for column in schema.columns]))
    else:
        spec.partitioning.check_columns(pa.schema([]))
    fields = [] if schema is None else [column.to_field() for column in schema.columns if _is_creatable(column)]
    directory = local_directory(uri)
    if directory is not None:
        make_directory_durably(directory)
    require_conditional_writes(get_parent_uri(uri), storage_options or {})
    try:
        DeltaTable.create(
            uri,
            Schema.from_arrow(
                pa.schema([*initial_schema(spec.kind, spec.partitioning, is_typed=spec.format.is_typed), *fields])
            ),
            mode="error",
            partition_by=list(spec.partitioning.columns),
            name=spec.topic if schema is None or schema.name is None else schema.name,
            configuration={
                **build_spec_properties(spec),
                "delta.checkpointInterval": CHECKPOINT_INTERVAL,
                **({} if schema is None else build_schema_properties(schema, 1)),
            },
            description=None if schema is None else schema.comment,
            storage_options=to_delta_options(storage_options),
            # A retried creation after a lost race would become version 1 and remove columns that were added since.
            commit_properties=WITHOUT_RETRIES,
            raise_if_key_not_exists=False,
        )
    except (DeltaError, OSError) as error:
        if isinstance(error, OSError) and directory is not None:
            raise
        # Another process may have created it: then it can be opened.
        try:
            open_delta(uri, storage_options)
        except TableMissingError:
            with convert_delta_errors(uri):
                raise error from None
    sync_log_entry(uri, 0)


def _read_value_schema(table: DeltaTable) -> TableSchema:
    """Return the declared schema of a table's values; tables without one infer all columns."""
    return _read_declared_schema(table)[1]


def _read_schema_version(table: DeltaTable) -> int:
    return _read_declared_schema(table)[0]


def _read_declared_schema(table: DeltaTable) -> tuple[int, TableSchema]:
    """Return the version and the declared schema of a table: that of its properties or of its last rebuild.

    A rebuild that was interrupted after its commit has not updated the properties.
    """
    version, text = _read_stored_version(table), table.metadata().configuration.get(SCHEMA_PROPERTY)
    rebuilt = _read_rebuild_metadata(table)
    if int(rebuilt.get(SCHEMA_VERSION_PROPERTY, 0)) > version:
        version, text = int(rebuilt[SCHEMA_VERSION_PROPERTY]), rebuilt[SCHEMA_PROPERTY]
    return version, INFERRED if text is None else parse_schema_document(json.loads(text), is_stored=True)


def _read_stored_version(table: DeltaTable) -> int:
    """Return the version of the declared schema in the table properties."""
    return int(table.metadata().configuration.get(SCHEMA_VERSION_PROPERTY, 0))


def _read_rebuild_metadata(table: DeltaTable) -> dict[str, str]:
    """Return what the last rebuild stored in the metadata of the field `_rescued`."""
    schema = get_delta_arrow_schema(table)
    metadata = schema.field(RESCUED).metadata if RESCUED in schema.names else None
    return {key.decode(): value.decode() for key, value in (metadata or {}).items()}


def _mark_as_rebuilt(table: DeltaTable, target: TableDescriptor) -> pa.Schema:
    """Return the schema of a rebuilt table, in which the metadata of `_rescued` has its declared schema.

    Files that were written before the rebuild then no longer match the table, even if all columns have kept their type.
    """
    version, known = _read_declared_schema(table)
    metadata = {REBUILT_VERSION: str(table.version())}
    if target.value_schema != known:
        metadata[SCHEMA_PROPERTY] = json.dumps(build_schema_document(target.value_schema))
        metadata[SCHEMA_VERSION_PROPERTY] = str(version + 1)
    return pa.schema([field.with_metadata(metadata) if field.name == RESCUED else field for field in target.schema])


def _read_schema_versions(table: DeltaTable) -> dict[int, TableSchema]:
    versions = read_schema_versions(table.metadata().configuration)
    version, schema = _read_declared_schema(table)
    return {**versions, version: schema} if version else versions


def _build_field_metadata(field: pa.Field) -> dict[str, str]:
    """Return the metadata of a column's field. Keys are never removed from a field, so all of them have values."""
    full = {PATH_KEY: json.dumps([field.name]).encode(), FORMAT_KEY: b"", COMMENT_KEY: b"", SETTINGS_KEY: b"{}"}
    return {key.decode(): value.decode() for key, value in (full | (field.metadata or {})).items()}


def _has_timestamp_without_zone(data_type: pa.DataType) -> bool:
    if pa.types.is_timestamp(data_type):
        return data_type.tz is None
    return any(_has_timestamp_without_zone(data_type.field(index).type) for index in range(data_type.num_fields))


def _is_creatable(column: Column) -> bool:
    """Return whether delta-rs can create a table with the column.

    It overlooks timestamps without a zone in maps, so that such a column must be added after its Delta feature.
    """
    return not (_has_timestamp_without_zone(column.data_type) and _has_map(column.data_type))


def _has_map(data_type: pa.DataType) -> bool:
    is_map = bool(pa.types.is_map(data_type))
    return is_map or any(_has_map(data_type.field(index).type) for index in range(data_type.num_fields))


def _build_add_action(file: WrittenFile, rows_change: bool = True) -> AddAction:
    return AddAction(file.path, file.size_bytes, file.partition_values, file.modified_ms, rows_change, file.stats)


def _build_remove_action(file: LiveFile, columns: Sequence[str], rows_change: bool) -> RemoveAction:
    values = {name: format_partition_value(value) for name, value in zip(columns, file.partition_values, strict=True)}
    return RemoveAction(file.path, rows_change, int(time.time() * 1000), file.size_bytes, values)
