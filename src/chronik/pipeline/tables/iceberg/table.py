"""Topic tables as Iceberg tables: the topic's offsets are in the snapshots that add its rows.

Rows are committed with `commit_protocol`, and never with PyIceberg's own appends. Changes of columns and properties are
planned on the current metadata, and sent with the requirement that it has not changed; after any failure they are
planned again, which finds what an earlier attempt has changed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
)

from chronik.errors import ConfigError
from chronik.pipeline import failpoints
from chronik.pipeline.tables.as_of import AsOf, AsOfVersion, format_time
from chronik.pipeline.tables.commit_plan import (
    CommitRejectedError,
    SchemaChangedError,
    TaskOutput,
    WrittenFile,
    WrittenFilesLostError,
    plan_commit,
)
from chronik.pipeline.tables.iceberg.catalogs import (
    NAMESPACE,
    convert_catalog_errors,
    load_table,
    open_catalog,
    summarize_error,
    to_table_identifier,
)
from chronik.pipeline.tables.iceberg.commit_protocol import (
    Abandoned,
    CommitRequest,
    Committed,
    Outcome,
    Plan,
    Reload,
    Send,
    SnapshotCommit,
    TableHead,
)
from chronik.pipeline.tables.iceberg.data_files import (
    DATA_DIRECTORY,
    build_data_file,
    iter_entries,
    list_live_files,
    read_file_statistics,
    to_path,
)
from chronik.pipeline.tables.iceberg.foreign_changes import check_names, check_writable, encode_field_ids
from chronik.pipeline.tables.iceberg.landed_offsets import Ancestor, LandedOffsets, StoredOffsets, read_stored_offsets
from chronik.pipeline.tables.iceberg.schemas import (
    ColumnMetadata,
    build_partition_spec,
    build_schema,
    build_sort_order,
    collect_metadata,
    decode_metadata,
    encode_metadata,
    exclude_hidden_fields,
    find_schema,
    insert_hidden_fields,
    is_upgradable,
    select_columns,
    to_arrow_fields,
)
from chronik.pipeline.tables.iceberg.snapshot_writer import MAIN, CatalogRequest, SnapshotPlan, write_snapshot
from chronik.pipeline.tables.iceberg.unused_files import (
    METADATA_DIRECTORY,
    METADATA_SUFFIXES,
    list_expirable_snapshots,
    list_metadata_files,
    list_old_files,
    list_reachable_files,
)
from chronik.pipeline.tables.layout import RESCUED, TIMESTAMP, TableKind, initial_schema
from chronik.pipeline.tables.storage import TableStorage, get_parent_uri, local_directory
from chronik.pipeline.tables.storage_options import resolve_storage_options
from chronik.pipeline.tables.table_files import (
    COMMIT_HOURS_MAX,
    LiveFile,
    TableDescriptor,
    TableFiles,
    find_uncommittable_files,
)
from chronik.pipeline.tables.table_properties import (
    DECODING_RULES_PROPERTY,
    REBUILT_VERSION,
    REGISTRY_URL,
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
    VersionUnavailableError,
)
from chronik.pipeline.tables.values.field_statistics import FieldStatistics
from chronik.pipeline.tables.values.json_decoder import check_codecs
from chronik.pipeline.tables.values.schema_evolution import EvolvedSchema, has_unchanged_columns, plan_new_columns
from chronik.pipeline.tables.values.table_schema import INFERRED, TableSchema
from chronik.wording import pluralize

ATTEMPTS_MAX = 20
"""Maximum number of attempts to change columns or properties."""

RETRY_DELAY_SECONDS_MAX = 0.2

MAINTENANCE_PREFIX = "chronik.maintenance."
"""Prefix of the table properties with the last maintenance record of each kind."""

CREATED_PROPERTY = "chronik.created-ms"

NEW_TABLE_PROPERTIES = {
    "format-version": "2",
    # Every commit writes the whole metadata to a new file.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}

Result = TypeVar("Result")


class RolledBackError(TableMismatchError):
    """A table does not have the rows of its last commit. The message names the offsets of both."""


class IcebergTopicTable:
    """A `TopicTable` stored as an Iceberg table of a catalog."""

    def __init__(self, uri: str, catalog_url: str, storage_options: Mapping[str, str] | None = None) -> None:
        """Open an existing table.

        Raises:
            TableMissingError: The catalog has no such table.
            TableError: The catalog cannot be used.
        """
        self.uri = uri.rstrip("/")
        self._catalog_url = catalog_url
        self._given_options = storage_options
        self._storage: tuple[Mapping[str, str], TableStorage] | None = None
        table = self._load()
        self._properties = table.properties
        self._location = table.location()
        self._has_old_names = is_upgradable(table.metadata.schema())

    @property
    def _name(self) -> str:
        return self.uri.rpartition("/")[2]

    @property
    def _storage_options(self) -> Mapping[str, str]:
        """The current options. Credentials in a profile file may be renewed while the table is open."""
        return resolve_storage_options(self.uri, self._given_options)

    @property
    def _catalog(self) -> Catalog:
        return open_catalog(self._catalog_url, self._storage_options)

    @property
    def storage(self) -> TableStorage:
        options = self._storage_options
        if self._storage is None or self._storage[0] != options:
            self._storage = options, TableStorage(self._data_uri, options)
        return self._storage[1]

    @property
    def _metadata_storage(self) -> TableStorage:
        return TableStorage(f"{to_path(self._location)}/{METADATA_DIRECTORY}", self._storage_options)

    @property
    def _data_uri(self) -> str:
        """The location of the data files, as storage expects it: a directory, or a URI of an object store."""
        return f"{to_path(self._location)}/{DATA_DIRECTORY}"

    @classmethod
    def open_or_create(
        cls,
        uri: str,
        catalog_url: str,
        spec: TableSpec,
        storage_options: Mapping[str, str] | None = None,
        schema: TableSchema | None = None,
    ) -> IcebergTopicTable:
        """Open a table, or create it if it does not exist. A new table gets the declared schema, if any.

        Raises:
            TableMismatchError: The existing table has another topic, kind or partitioning.
        """
        try:
            found = cls(uri, catalog_url, storage_options)
        except TableMissingError:
            _create_table(uri, catalog_url, spec, resolve_storage_options(uri, storage_options), schema)
            found = cls(uri, catalog_url, storage_options)
        if found.spec != spec:
            raise TableMismatchError(
                f"{uri} was created for {describe_table_spec(found.spec)}, not for {describe_table_spec(spec)}"
            )
        found._upgrade_decoding_rules()
        found._upgrade_column_names()
        return found

    def _upgrade_decoding_rules(self) -> None:
        """Upgrade the version of the decoding rules stored in the table, so that older drivers cannot commit."""
        rules = get_decoding_rules(self.spec.format)
        if read_decoding_rules(self.uri, self._properties) < rules:
            self._set_properties({DECODING_RULES_PROPERTY: str(rules)})

    def _upgrade_column_names(self) -> None:
        """Rename the column `_partition` of a table of an earlier version, so that Spark with Iceberg can read it."""

        def attempt(table: Table) -> tuple[CatalogRequest | None, None]:
            is_old = is_upgradable(table.metadata.schema())
            return self._build_schema_request(table, ())[0] if is_old else None, None

        if self._has_old_names:
            self._commit_metadata(attempt)

    @cached_property
    def spec(self) -> TableSpec:
        return read_spec(self.uri, self._properties, TableFormat.ICEBERG)

    # Reading

    def snapshot(self, as_of: AsOf | None = None) -> TableSnapshot:
        with convert_catalog_errors(self._catalog_url):
            table = self._load()
            current = table.metadata.current_snapshot() if as_of is None else self._find_snapshot(table.metadata, as_of)
            schema = _get_schema(table.metadata, current)
            descriptor = self._build_descriptor(table, schema)
            entries = [] if current is None else list(iter_entries(table, current))
            files = list_live_files(table, entries, schema, self.spec.partitioning)
            return TableSnapshot(
                version=0 if current is None else current.snapshot_id,
                spec=self.spec,
                next_offsets=dict(_read_offsets(table.metadata, current).of_rows.next_offsets),
                file_uris=tuple(self._build_file_uri(file) for file in files),
                descriptor=descriptor,
                live_files=files,
                statistics=read_file_statistics(entries, files, schema, descriptor.schema, descriptor.partition_by),
            )

    def _build_file_uri(self, file: LiveFile) -> str:
        return f"{self._data_uri}/{file.path}"

    def _find_snapshot(self, metadata: TableMetadata, as_of: AsOf) -> Snapshot:
        """Return the snapshot as of a point in time, which has all its files."""
        if isinstance(as_of, AsOfVersion):
            found = metadata.snapshot_by_id(as_of.version)
            if found is None:
                known = ", ".join(str(each.snapshot_id) for each in metadata.snapshots[:5]) or "none"
                raise VersionUnavailableError(f"{self.uri}: no snapshot {as_of.version}; the oldest are {known}")
            return found
        at_ms = as_of.time.timestamp() * 1000
        if at_ms > time.time() * 1000:
            raise VersionUnavailableError(f"{self.uri}: {format_time(as_of.time)} is in the future")
        earlier = [each for each in metadata.snapshot_log if each.timestamp_ms <= at_ms]
        found = metadata.snapshot_by_id(earlier[-1].snapshot_id) if earlier else None
        if found is None:
            raise VersionUnavailableError(f"{self.uri}: no snapshot as of {format_time(as_of.time)}")
        return found

    def next_offsets(self) -> dict[int, int]:
        return dict(self._read_landed(self._load()).next_offsets)

    def descriptor(self) -> TableDescriptor:
        table = self._load()
        self._check_writable(table)
        return self._build_descriptor(table, table.metadata.schema())

    def files(self) -> TableFiles:
        return self.snapshot().files

    def _build_descriptor(self, table: Table, schema: Schema) -> TableDescriptor:
        return TableDescriptor(
            self._data_uri,
            self._to_arrow(table, schema),
            self.spec.partitioning.columns,
            self._storage_options,
            _read_value_schema(table.properties),
            _read_schema_version(table.properties),
            format=read_record_format(table.properties),
            registry=read_registry(table.properties),
        )

    def _check_writable(self, table: Table) -> None:
        command = f"chronik pipeline rebuild {self.spec.topic} --table-root {get_parent_uri(self.uri)}"
        check_writable(self.uri, table, command)

    def _to_arrow(self, table: Table, schema: Schema | None = None) -> pa.Schema:
        if schema is None or schema.schema_id == table.metadata.current_schema_id:
            check_names(self.uri, table)
        fields = to_arrow_fields(schema or table.metadata.schema(), decode_metadata(table.properties))
        return insert_hidden_fields(fields, self.spec.partitioning)

    # Appending

    def commit(self, landed: Sequence[TaskOutput], written_with: pa.Schema | None = None) -> CommitResult:
        # Dead-letter records are rare: without gaps, their table would need a commit for every range without any.
        gaps = self.spec.kind is TableKind.DEAD_LETTERS
        partitions = {span.partition for each in landed for span in each.ranges}

        def plan(table: Table, request: CommitRequest) -> tuple[SnapshotPlan | None, CommitResult]:
            self._check_written_with(table, written_with)
            stored = self._read_landed(table)
            before = {each: stored.next_offsets[each] for each in partitions if each in stored.next_offsets}
            choice = plan_commit(landed, before, allow_gaps=gaps)
            offsets, rows = before | choice.next_offsets, sum(each.rows for each in choice.new_outputs)
            if not choice.new_outputs:
                return None, CommitResult(request.parent_id or 0, offsets, 0, choice.committed_outputs)
            files = [file for each in choice.new_outputs for file in each.files]
            added = self._build_data_files(table, files, is_sorted=True)
            result = CommitResult(request.snapshot_id, offsets, rows, choice.committed_outputs)
            return SnapshotPlan(stored.advance(choice.next_offsets), added), result

        return self._commit_snapshot(plan)

    def append_in_sequence(
        self, files: Sequence[WrittenFile], sequence: str, number: int, written_with: pa.Schema | None = None
    ) -> None:
        def plan(table: Table, _: CommitRequest) -> tuple[SnapshotPlan | None, None]:
            self._check_written_with(table, written_with)
            stored = self._read_landed(table)
            expected = stored.sequences.get(sequence, 0)
            if number != expected:
                raise SequenceConflictError(
                    f"{self.uri}: the next number of sequence {sequence} is {expected}, not {number}"
                )
            return SnapshotPlan(stored.advance_sequence(sequence), self._build_data_files(table, files)), None

        self._commit_snapshot(plan)

    def next_sequence_number(self, sequence: str) -> int:
        return self._read_landed(self._load()).sequences.get(sequence, 0)

    def _check_written_with(self, table: Table, written_with: pa.Schema | None) -> None:
        """Check that files written with this schema and this driver's decoding rules may be appended."""
        read_decoding_rules(self.uri, table.properties)
        if written_with is not None and not has_unchanged_columns(self._to_arrow(table), written_with):
            raise SchemaChangedError(f"{self.uri}: columns were changed, or the table was rebuilt")

    def _build_data_files(
        self, table: Table, files: Sequence[WrittenFile], *, is_sorted: bool = False, schema: Schema | None = None
    ) -> list[Any]:
        """Return the manifest entries of written files.

        Raises:
            WrittenFilesLostError: A vacuum has deleted or may delete any of the files.
        """
        lost = find_uncommittable_files(self.storage, files)
        if lost:
            message = f"{len(lost)} of {pluralize(len(files), 'file')} deleted or older than {COMMIT_HOURS_MAX} h"
            raise WrittenFilesLostError(f"{self.uri}: cannot commit: {message}, for example {lost[0]}")
        metadata = table.metadata
        order = metadata.default_sort_order_id if is_sorted else None
        return [
            build_data_file(
                file,
                table.location(),
                schema or metadata.schema(),
                self.spec.partitioning,
                metadata.default_spec_id,
                order,
            )
            for file in files
        ]

    def add_columns(self, unknown_fields: FieldStatistics) -> EvolvedSchema:
        def attempt(table: Table) -> tuple[CatalogRequest | None, EvolvedSchema]:
            self._check_writable(table)
            arrow = self._to_arrow(table)
            plan = plan_new_columns(_read_value_schema(table.properties), arrow, unknown_fields)
            if not plan.added:
                return None, EvolvedSchema(arrow, plan.rejected)
            request, schema, metadata = self._build_schema_request(table, plan.added)
            fields = to_arrow_fields(schema, metadata)
            return request, EvolvedSchema(insert_hidden_fields(fields, self.spec.partitioning), plan.rejected)

        return self._commit_metadata(attempt)

    def _build_schema_request(
        self, table: Table, changed: Sequence[pa.Field], properties: Mapping[str, str] | None = None
    ) -> tuple[CatalogRequest, Schema, ColumnMetadata]:
        """Return a request that adds columns or replaces their types and metadata, and what it changes."""
        known = table.metadata.schema()
        by_name = {field.name: field for field in to_arrow_fields(known, decode_metadata(table.properties))}
        by_name |= {field.name: field for field in changed}
        schema_id = max(each.schema_id for each in table.metadata.schemas) + 1
        schema = build_schema(by_name.values(), known, schema_id, table.metadata.last_column_id)
        replaced = {field.name for field in changed}
        kept = decode_metadata(table.properties).items()
        metadata = {path: entries for path, entries in kept if path.partition(".")[0] not in replaced}
        metadata |= collect_metadata(changed)
        requirements = (
            AssertTableUUID(uuid=table.metadata.table_uuid),
            AssertCurrentSchemaId(current_schema_id=known.schema_id),
            AssertLastAssignedFieldId(last_assigned_field_id=table.metadata.last_column_id),
        )
        updates: tuple[Any, ...] = (SetPropertiesUpdate(updates={**encode_metadata(metadata), **(properties or {})}),)
        if schema.as_struct() != known.as_struct():
            field_ids = SetPropertiesUpdate(updates=encode_field_ids(schema))
            updates = (AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate(schema_id=-1), *updates, field_ids)
        return CatalogRequest(requirements, updates), schema, metadata

    def set_schema(self, schema: TableSchema) -> int:
        check_codecs(schema, self.spec.partitioning.columns)

        def attempt(table: Table) -> tuple[CatalogRequest | None, int]:
            self._check_writable(table)
            arrow = self._to_arrow(table)
            missing = [column.to_field() for column in find_missing_columns(self.uri, schema, arrow)]
            changed = [*missing, *find_changed_fields(schema, arrow)]
            version, known = _read_schema_version(table.properties), _read_value_schema(table.properties)
            properties = {}
            if version == 0 or known != schema:
                version += 1
                properties = {**build_schema_properties(schema, version), **_build_comment(schema)}
            if not changed and not properties:
                return None, version
            return self._build_schema_request(table, changed, properties)[0], version

        return self._commit_metadata(attempt)

    def set_registry_url(self, url: str) -> None:
        if self._load().properties.get(REGISTRY_URL) != url:
            self._set_properties({REGISTRY_URL: url})

    def enable_features(self, columns: pa.Schema) -> None:
        """Do nothing: Iceberg's format version 2 has all types of columns."""

    def schema_versions(self) -> dict[int, TableSchema]:
        return read_schema_versions(self._load().properties)

    # Maintenance

    def statistics(self) -> TableStatistics:
        snapshot = self.snapshot()
        with convert_catalog_errors(self._catalog_url):
            table = self._load()
            current = table.metadata.current_snapshot()
            manifests = 0 if current is None else len(current.manifests(table.io))
        assert snapshot.statistics is not None
        return TableStatistics(
            format=TableFormat.ICEBERG,
            version=snapshot.version,
            versions_kept=len(table.metadata.snapshots),
            metadata_files=manifests,
            created_ms=int(table.properties.get(CREATED_PROPERTY, 0)),
            files=snapshot.live_files,
            oldest_data_ms=_find_bound(snapshot.statistics.lower.get(TIMESTAMP), min),
            newest_data_ms=_find_bound(snapshot.statistics.upper.get(TIMESTAMP), max),
            last_compaction=_read_record(table.properties, MaintenanceKind.COMPACTION),
            last_vacuum=_read_record(table.properties, MaintenanceKind.VACUUM),
            last_rebuild=_read_record(table.properties, MaintenanceKind.REBUILD),
        )

    def record_maintenance(self, record: MaintenanceRecord) -> None:
        self._set_properties(_build_record_property(record))

    def replace_files(
        self,
        removed: Sequence[LiveFile],
        written: Sequence[WrittenFile],
        *,
        data_change: bool,
        record: MaintenanceRecord | None = None,
    ) -> bool:
        paths = frozenset(f"{self._data_uri}/{file.path}" for file in removed)
        sent: set[int] = set()

        def plan(table: Table, request: CommitRequest) -> tuple[SnapshotPlan | None, bool]:
            current = table.metadata.current_snapshot()
            entries = [] if current is None else iter_entries(table, current)
            live = {to_path(entry.data_file.file_path) for entry in entries}
            # A commit adds all of them. If only some are left, another commit has replaced the others since.
            if any(f"{self._data_uri}/{file.path}" in live for file in written):
                return None, True
            if not paths <= live:
                raise CommitRejectedError(f"{self.uri}: other files have replaced those to replace")
            sent.add(request.snapshot_id)
            properties = {} if record is None else _build_record_property(record)
            added = self._build_data_files(table, written)
            plan = SnapshotPlan(self._read_landed(table), added, paths, properties, is_rewrite=not data_change)
            return plan, True

        try:
            return self._commit_snapshot(plan)
        except CommitRejectedError as rejected:
            if not rejected.is_undecided:
                self.storage.discard_files(file.path for file in written)
            return False

    def repair_offsets(self, *, lands_again: bool) -> dict[int, int]:
        def plan(table: Table, _: CommitRequest) -> tuple[SnapshotPlan | None, LandedOffsets]:
            stored = _read_offsets(table.metadata, table.metadata.current_snapshot())
            if not stored.is_rolled_back:
                return None, stored.of_rows
            chosen = stored.in_snapshot if lands_again else stored.in_property
            if chosen is None:
                raise TableMismatchError(
                    f"{self.uri}: the offsets of its rows are unknown, since the snapshots that had them have expired"
                )
            return SnapshotPlan(chosen, is_rewrite=True), chosen

        return dict(self._commit_snapshot(plan).next_offsets)

    def prepare_columns(self, target: TableDescriptor, extended: TableDescriptor | None = None) -> TableDescriptor:
        """Return the description with the field ids of the columns, which the table's metadata then reserves.

        The schema is added to the metadata, but does not become the current one: no other writer uses its new ids.
        """
        fields = exclude_hidden_fields(target.schema, self.spec.partitioning)

        def attempt(table: Table) -> tuple[CatalogRequest | None, pa.Schema]:
            metadata = table.metadata
            self._check_partition_columns(table, fields)
            if extended is None:
                known = select_columns(metadata.schema(), decode_metadata(table.properties), fields)
            else:
                earlier = exclude_hidden_fields(extended.schema, self.spec.partitioning)
                known = find_schema(metadata.schemas, earlier)
                if known is None:
                    raise TableCommitError(f"{self.uri}: another tool has removed the columns of a rebuild: try again")
            schema_id = max(each.schema_id for each in metadata.schemas) + 1
            schema = build_schema(fields, known, schema_id, metadata.last_column_id)
            arrow = to_arrow_fields(schema, collect_metadata(fields))
            if find_schema(metadata.schemas, arrow) is not None:
                return None, insert_hidden_fields(arrow, self.spec.partitioning)
            requirements = (
                AssertTableUUID(uuid=metadata.table_uuid),
                AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
            )
            request = CatalogRequest(requirements, (AddSchemaUpdate(schema=schema),))
            return request, insert_hidden_fields(arrow, self.spec.partitioning)

        return replace(target, schema=self._commit_metadata(attempt))

    def _check_partition_columns(self, table: Table, fields: Sequence[pa.Field]) -> None:
        """Check that the columns by which a table is partitioned keep their types, and so their field ids."""
        known = {field.name: field.type for field in self._to_arrow(table)}
        types = {field.name: field.type for field in fields}
        for name in {each.source for each in self.spec.partitioning.fields}:
            if types.get(name) != known.get(name):
                raise ConfigError(
                    f"{self.uri} is partitioned by column {name!r}, which must keep its type {known.get(name)}:"
                    " land the topic under another --table-root"
                )

    def replace_rows(
        self, before: TableSnapshot, written: Sequence[WrittenFile], target: TableDescriptor
    ) -> int | None:
        fields = exclude_hidden_fields(target.schema, self.spec.partitioning)

        def plan(table: Table, request: CommitRequest) -> tuple[SnapshotPlan | None, int | None]:
            schema = find_schema(table.metadata.schemas, fields)
            is_changed = (request.parent_id or 0) != before.version or not before.descriptor.has_same_columns(
                self._build_descriptor(table, table.metadata.schema())
            )
            if is_changed or schema is None:
                return None, None
            current = table.metadata.current_snapshot()
            entries = [] if current is None else iter_entries(table, current)
            plan = SnapshotPlan(
                self._read_landed(table),
                self._build_data_files(table, written, schema=schema),
                frozenset(to_path(entry.data_file.file_path) for entry in entries),
                self._build_rebuild_properties(table, before.version, fields, target.value_schema)
                | encode_field_ids(schema),
                schema=schema,
            )
            return plan, request.snapshot_id

        return self._commit_snapshot(plan)

    def _build_rebuild_properties(
        self, table: Table, version: int, fields: Sequence[pa.Field], value_schema: TableSchema
    ) -> dict[str, str]:
        """Return the properties that describe the columns and the declared schema of rebuilt rows."""
        metadata = collect_metadata(fields)
        metadata[RESCUED] = {REBUILT_VERSION: str(version)}
        properties = encode_metadata(metadata)
        if value_schema != _read_value_schema(table.properties):
            number = _read_schema_version(table.properties) + 1
            properties |= build_schema_properties(value_schema, number) | _build_comment(value_schema)
        return properties

    def vacuum_files(self, hours: int, *, orphans: bool, dry_run: bool = False) -> list[str]:
        before_s = time.time() - hours * 3600
        with convert_catalog_errors(self._catalog_url):
            return self._vacuum_orphans(before_s, dry_run) if orphans else self._vacuum_expired(before_s, dry_run)

    def _vacuum_expired(self, before_s: float, dry_run: bool) -> list[str]:
        """Expire snapshots, and delete the files that only they have."""
        table = self._load()
        expired = list_expirable_snapshots(table.metadata, int(before_s * 1000))
        if not expired:
            return []
        candidates = list_reachable_files(table, expired)
        if not dry_run:
            self._expire(int(before_s * 1000))
            table = self._load()
        ids = {each.snapshot_id for each in expired}
        kept = list_reachable_files(table, (each for each in table.metadata.snapshots if each.snapshot_id not in ids))
        prefix = f"{to_path(table.location())}/"
        unused = sorted(path.removeprefix(prefix) for path in candidates - kept if path.startswith(prefix))
        return self._delete(unused, dry_run)

    def _vacuum_orphans(self, before_s: float, dry_run: bool) -> list[str]:
        """Delete files that no snapshot refers to. They are listed first: files that are committed later are kept."""
        data = list_old_files(self.storage, before_s)
        metadata = list_old_files(self._metadata_storage, before_s, METADATA_SUFFIXES)
        table = self._load()
        location = to_path(table.location())
        used = list_reachable_files(table, table.metadata.snapshots) | list_metadata_files(table)
        old = [f"{DATA_DIRECTORY}/{path}" for path in data] + [f"{METADATA_DIRECTORY}/{path}" for path in metadata]
        return self._delete([path for path in old if f"{location}/{path}" not in used], dry_run)

    def _delete(self, paths: Sequence[str], dry_run: bool) -> list[str]:
        """Delete files, by their paths relative to the table's location, and return the paths of those that existed."""
        removed = []
        for directory, storage in ((DATA_DIRECTORY, self.storage), (METADATA_DIRECTORY, self._metadata_storage)):
            names = [path.removeprefix(f"{directory}/") for path in paths if path.startswith(f"{directory}/")]
            for name in storage.get_modification_times(names):
                removed.append(f"{directory}/{name}")
                if not dry_run:
                    storage.remove(name)
        return removed

    def abort_uploads(self, hours: int, *, dry_run: bool = False) -> list[str]:
        before_s = time.time() - hours * 3600
        return [
            f"{directory}/{path}"
            for directory, storage in ((DATA_DIRECTORY, self.storage), (METADATA_DIRECTORY, self._metadata_storage))
            for path in storage.abort_uploads(before_s, dry_run=dry_run)
        ]

    def expire_versions(self, hours: int) -> int:
        return self._expire(int((time.time() - hours * 3600) * 1000))

    def _expire(self, before_ms: int) -> int:
        """Remove snapshots from the table's metadata, and return their number."""
        removed: set[int] = set()

        def attempt(table: Table) -> tuple[CatalogRequest | None, int]:
            ids = [each.snapshot_id for each in list_expirable_snapshots(table.metadata, before_ms)]
            removed.update(ids)
            if not ids:
                return None, len(removed)  # an attempt whose response was lost has removed them
            head = _get_head(table.metadata)
            requirements = (
                AssertTableUUID(uuid=table.metadata.table_uuid),
                AssertRefSnapshotId(ref=MAIN, snapshot_id=head.snapshot_id),
            )
            return CatalogRequest(requirements, (RemoveSnapshotsUpdate(snapshot_ids=ids),)), len(removed)

        return self._commit_metadata(attempt)

    def compact_metadata(self) -> None:
        def plan(table: Table, request: CommitRequest) -> tuple[SnapshotPlan | None, None]:
            if request.parent_id is None:
                return None, None
            return SnapshotPlan(self._read_landed(table), is_rewrite=True, merges_manifests=True), None

        self._commit_snapshot(plan)

    # Commits

    def _read_landed(self, table: Table) -> LandedOffsets:
        """Return the offsets up to which a table has landed.

        Raises:
            RolledBackError: Someone has rolled the table back.
        """
        stored = _read_offsets(table.metadata, table.metadata.current_snapshot())
        if stored.is_rolled_back:
            rows = "unknown" if stored.in_snapshot is None else str(stored.in_snapshot)
            raise RolledBackError(
                f"{self.uri} was rolled back: its rows end at offsets {rows}, but its last commit ended at"
                f" {stored.in_property}. Choose whether the records in between land again: chronik pipeline repair"
                f" {self.spec.topic} --table-root {get_parent_uri(self.uri)} --removed-records land-again|skip"
            )
        return stored.of_rows

    def _commit_snapshot(self, plan: Callable[[Table, CommitRequest], tuple[SnapshotPlan | None, Result]]) -> Result:
        """Commit a snapshot that `plan` describes exactly once, and return its result.

        `plan` returns None instead of a snapshot if there is nothing to commit any more.

        Raises:
            CommitRejectedError: By `plan`. Its files must be kept if `is_undecided`.
            TableCommitError: The commit did not succeed within its attempts.
        """
        commit = SnapshotCommit(lambda: random.getrandbits(63))
        results: dict[int, Result] = {}
        table: Table | None = None
        request: CatalogRequest | None = None
        error: Exception | None = None
        while True:
            match commit.action:
                case Reload():
                    try:
                        table = self._load()
                    except TableMissingError:
                        raise
                    except (TableError, OSError) as failure:
                        error = failure
                        commit.reload_failed()
                        _pause()
                    else:
                        if request is not None:
                            failpoints.hit_failpoint(failpoints.ICEBERG_RELOAD)
                        commit.reloaded(_get_head(table.metadata))
                case Plan(wanted):
                    assert table is not None
                    try:
                        prepared, results[wanted.snapshot_id] = plan(table, wanted)
                    except CommitRejectedError as rejected:
                        rejected.is_undecided = commit.is_undecided
                        raise
                    if prepared is None:
                        return results[wanted.snapshot_id]
                    failpoints.hit_failpoint(failpoints.ICEBERG_PLAN)
                    with convert_catalog_errors(self._catalog_url):
                        request = write_snapshot(table, wanted, prepared)
                    failpoints.hit_failpoint(failpoints.ICEBERG_MANIFESTS)
                    commit.planned()
                case Send():
                    assert table is not None
                    assert request is not None
                    outcome, failed = self._send(table, request)
                    failpoints.hit_failpoint(failpoints.ICEBERG_RESPONSE)
                    commit.responded(outcome)
                    if failed is not None:
                        error = failed
                        _pause()
                case Committed(snapshot_id):
                    return results[snapshot_id]
                case Abandoned(reason):
                    cause = "" if error is None else f": {summarize_error(error)}"
                    raise TableCommitError(f"{self.uri}: {reason}{cause}") from error

    def _send(self, table: Table, request: CatalogRequest) -> tuple[Outcome, Exception | None]:
        catalog = self._catalog
        try:
            catalog.commit_table(table, request.requirements, request.updates)
        except CommitFailedException as error:
            # A REST catalog may answer so to the repetition of a request that it has applied.
            return Outcome.REJECTED if isinstance(catalog, SqlCatalog) else Outcome.UNKNOWN, error
        except Exception as error:
            return Outcome.UNKNOWN, error
        return Outcome.ACCEPTED, None

    def _set_properties(self, properties: Mapping[str, str]) -> None:
        def attempt(table: Table) -> tuple[CatalogRequest, None]:
            requirements = (AssertTableUUID(uuid=table.metadata.table_uuid),)
            return CatalogRequest(requirements, (SetPropertiesUpdate(updates=dict(properties)),)), None

        self._commit_metadata(attempt)

    def _commit_metadata(self, attempt: Callable[[Table], tuple[CatalogRequest | None, Result]]) -> Result:
        """Commit a change of columns or properties. Attempts are planned again until one has nothing left to change.

        Raises:
            TableCommitError: The commit did not succeed within its attempts.
        """
        error: Exception | None = None
        for _ in range(ATTEMPTS_MAX):
            try:
                table = self._load()
            except TableMissingError:
                raise
            except (TableError, OSError) as failure:
                error = failure
            else:
                request, result = attempt(table)
                if request is None:
                    return result
                outcome, error = self._send(table, request)
                if outcome is Outcome.ACCEPTED:
                    return result
            _pause()
        assert error is not None
        raise TableCommitError(f"{self.uri}: {summarize_error(error)}") from error

    def _load(self) -> Table:
        return load_table(self._catalog, self._catalog_url, self._name, self.uri)


def _create_table(
    uri: str, catalog_url: str, spec: TableSpec, storage_options: Mapping[str, str], schema: TableSchema | None
) -> None:
    columns = [] if schema is None else [column.to_field() for column in schema.columns]
    if schema is not None:
        check_codecs(schema, spec.partitioning.columns)
    spec.partitioning.check_columns(pa.schema(columns))
    system = initial_schema(spec.kind, spec.partitioning, is_typed=spec.format.is_typed)
    fields = [*exclude_hidden_fields(system, spec.partitioning), *columns]
    iceberg = build_schema(fields)
    directory = local_directory(uri)
    catalog = open_catalog(catalog_url, storage_options)
    # The table may exist, if another process has created it at the same time.
    with convert_catalog_errors(catalog_url), suppress(TableAlreadyExistsError):
        catalog.create_table(
            (NAMESPACE, to_table_identifier(uri.rstrip("/").rpartition("/")[2])),
            iceberg,
            # A path, because PyIceberg does not decode the characters of a file URI.
            location=uri if directory is None else str(directory.absolute()),
            partition_spec=build_partition_spec(spec.partitioning, iceberg),
            sort_order=build_sort_order(iceberg),
            properties={
                **NEW_TABLE_PROPERTIES,
                **build_spec_properties(spec),
                CREATED_PROPERTY: str(int(time.time() * 1000)),
                **encode_metadata(collect_metadata(fields)),
                **({} if schema is None else build_schema_properties(schema, 1) | _build_comment(schema)),
            },
        )


def _get_head(metadata: TableMetadata) -> TableHead:
    current = metadata.current_snapshot()
    return TableHead(
        str(metadata.table_uuid),
        None if current is None else current.snapshot_id,
        metadata.current_schema_id,
        frozenset(each.snapshot_id for each in metadata.snapshots),
    )


def _get_schema(metadata: TableMetadata, snapshot: Snapshot | None) -> Schema:
    """Return the schema of a snapshot; for the current one, that of the table, which may have new columns."""
    if snapshot is None or snapshot == metadata.current_snapshot() or snapshot.schema_id is None:
        return metadata.schema()
    return next(each for each in metadata.schemas if each.schema_id == snapshot.schema_id)


def _read_offsets(metadata: TableMetadata, snapshot: Snapshot | None) -> StoredOffsets:
    ancestors = (
        Ancestor(each.sequence_number or 0, {} if each.summary is None else each.summary.additional_properties)
        for each in ancestors_of(snapshot, metadata)
    )
    return read_stored_offsets(ancestors, metadata.properties)


def _read_value_schema(properties: Mapping[str, str]) -> TableSchema:
    return read_schema_versions(properties).get(_read_schema_version(properties), INFERRED)


def _read_schema_version(properties: Mapping[str, str]) -> int:
    return int(properties.get(SCHEMA_VERSION_PROPERTY, 0))


def _build_comment(schema: TableSchema) -> dict[str, str]:
    return {} if schema.comment is None else {"comment": schema.comment}


def _build_record_property(record: MaintenanceRecord) -> dict[str, str]:
    return {f"{MAINTENANCE_PREFIX}{record.kind}": encode_maintenance_record(record)}


def _read_record(properties: Mapping[str, str], kind: MaintenanceKind) -> MaintenanceRecord | None:
    text = properties.get(f"{MAINTENANCE_PREFIX}{kind}")
    return None if text is None else decode_maintenance_record(text)


def _find_bound(values: pa.Array | None, choose: Callable[[list[int]], int]) -> int | None:
    known = [] if values is None else [each for each in values.cast(pa.int64()).to_pylist() if each is not None]
    return choose(known) // 1000 if known else None


def _pause() -> None:
    time.sleep(random.uniform(0, RETRY_DELAY_SECONDS_MAX))
