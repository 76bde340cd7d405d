"""Writes the manifests of a new snapshot, and builds the request that commits it to a catalog."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)

from chronik.pipeline.tables.iceberg.commit_protocol import CommitRequest
from chronik.pipeline.tables.iceberg.data_files import copy_entry, to_path
from chronik.pipeline.tables.iceberg.landed_offsets import LandedOffsets, encode_properties
from chronik.pipeline.tables.topic_table import TableMismatchError

MAIN: Final = "main"
FORMAT_VERSION: Final = 2
AVRO_CODEC: Final = "deflate"

MANIFESTS_MAX: Final = 100
"""Number of manifests from which on a commit merges the small ones, as Iceberg's own writers do. Each commit adds one,
and a reader opens all of them."""

MANIFEST_BYTES_TARGET: Final = 8 * 1024 * 1024
"""Size in bytes from which on a manifest is not merged any more, as in Iceberg."""


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The content of a new snapshot: what it changes in the one before it."""

    landed: LandedOffsets
    added: Sequence[DataFile] = ()
    removed_paths: frozenset[str] = frozenset()
    """Locations of removed data files, as `to_path` returns them."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Further table properties to set in the same commit."""
    is_rewrite: bool = False
    """Whether the snapshot has the same rows as the one before it, in other files."""
    merges_manifests: bool = False
    """Whether all small manifests are merged, also if they are few."""
    schema: Schema | None = None
    """The schema that becomes the current one with the snapshot; None to keep it."""


@dataclass(frozen=True, slots=True)
class CatalogRequest:
    """A complete commit request, which is sent identically again if its outcome is unknown."""

    requirements: tuple[Any, ...]
    updates: tuple[Any, ...]


def write_snapshot(table: Table, request: CommitRequest, plan: SnapshotPlan) -> CatalogRequest:
    """Write the manifests of a new snapshot durably, and return the request that commits it."""
    if table.metadata.format_version != FORMAT_VERSION:
        version = table.metadata.format_version
        raise TableMismatchError(f"{table.location()} has format version {version}: Chronik writes version 2")
    parent = None if request.parent_id is None else table.metadata.snapshot_by_id(request.parent_id)
    writer = _ManifestWriter(table, request.snapshot_id, plan.schema or table.metadata.schema())
    collector = SnapshotSummaryCollector()
    spec, schema = table.metadata.spec(), plan.schema or table.metadata.schema()
    for file in plan.added:
        collector.add_file(file, schema, spec)
    manifests = [] if parent is None else parent.manifests(table.io)
    if plan.removed_paths:
        manifests, removed = writer.remove_files(manifests, plan.removed_paths)
        for file in removed:
            collector.remove_file(file, schema, table.metadata.specs()[file.spec_id])
    if plan.added:
        manifests = [writer.add_files(plan.added), *manifests]
    if len(manifests) >= MANIFESTS_MAX or plan.merges_manifests:
        manifests = writer.merge(manifests)
    number = table.metadata.next_sequence_number()
    manifest_list = f"{table.location()}/metadata/snap-{request.snapshot_id}-0-{uuid.uuid4()}.avro"
    with write_manifest_list(
        format_version=FORMAT_VERSION,
        output_file=table.io.new_output(manifest_list),
        snapshot_id=request.snapshot_id,
        parent_snapshot_id=request.parent_id,
        sequence_number=number,
        avro_compression=AVRO_CODEC,
    ) as output:
        output.add_manifests(manifests)
    snapshot = Snapshot(
        snapshot_id=request.snapshot_id,
        parent_snapshot_id=request.parent_id,
        sequence_number=number,
        # Snapshots are found by their times, also if the clock of another writer is ahead.
        timestamp_ms=max(int(time.time() * 1000), table.metadata.last_updated_ms + 1),
        manifest_list=manifest_list,
        summary=_build_summary(parent, collector, plan),
        schema_id=schema.schema_id,
    )
    is_kept = schema.schema_id == request.schema_id
    return CatalogRequest(
        (
            AssertTableUUID(uuid=request.table_uuid),
            AssertRefSnapshotId(ref=MAIN, snapshot_id=request.parent_id),
            AssertCurrentSchemaId(current_schema_id=request.schema_id),
        ),
        (
            *([] if is_kept else [SetCurrentSchemaUpdate(schema_id=schema.schema_id)]),
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(ref_name=MAIN, type="branch", snapshot_id=request.snapshot_id),
            SetPropertiesUpdate(updates={**plan.properties, **encode_properties(plan.landed, number)}),
        ),
    )


def _build_summary(parent: Snapshot | None, collector: SnapshotSummaryCollector, plan: SnapshotPlan) -> Summary:
    operation = Operation.OVERWRITE if plan.removed_paths else Operation.APPEND
    own = Summary(operation=operation, **collector.build(), **plan.landed.encode())
    previous = None if parent is None or parent.summary is None else parent.summary
    found = update_snapshot_summaries(own, None if previous is None else previous.additional_properties)
    return Summary(operation=Operation.REPLACE if plan.is_rewrite else operation, **found.additional_properties)


class _ManifestWriter:
    """A writer of the manifests of one snapshot."""

    def __init__(self, table: Table, snapshot_id: int, schema: Schema) -> None:
        self._table = table
        self._snapshot_id = snapshot_id
        self._schema = schema

    def add_files(self, files: Iterable[DataFile]) -> ManifestFile:
        """Write a manifest of new data files."""
        entries = [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self._snapshot_id,
                sequence_number=None,
                file_sequence_number=None,
                data_file=file,
            )
            for file in files
        ]
        return self._write(entries, self._table.metadata.default_spec_id)

    def remove_files(
        self, manifests: Iterable[ManifestFile], paths: frozenset[str]
    ) -> tuple[list[ManifestFile], list[DataFile]]:
        """Return the manifests without data files, and the files. Manifests that have none of them are kept."""
        kept, removed = [], []
        for manifest in manifests:
            entries = manifest.fetch_manifest_entry(self._table.io, discard_deleted=True)
            gone = {id(entry) for entry in entries if to_path(entry.data_file.file_path) in paths}
            if not gone:
                kept.append(manifest)
                continue
            removed += [entry.data_file for entry in entries if id(entry) in gone]
            changed = [
                copy_entry(
                    entry,
                    ManifestEntryStatus.DELETED if id(entry) in gone else ManifestEntryStatus.EXISTING,
                    self._snapshot_id,
                )
                for entry in entries
            ]
            kept.append(self._write(changed, manifest.partition_spec_id))
        return kept, removed

    def merge(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Merge the small manifests of earlier snapshots into one. Those of this snapshot are kept."""
        specs: dict[int, list[ManifestFile]] = {}
        kept: list[ManifestFile] = []
        for manifest in manifests:
            is_mergeable = (
                manifest.content is ManifestContent.DATA
                and manifest.added_snapshot_id != self._snapshot_id
                and manifest.manifest_length < MANIFEST_BYTES_TARGET
            )
            (specs.setdefault(manifest.partition_spec_id, []) if is_mergeable else kept).append(manifest)
        for spec_id, small in specs.items():
            if len(small) == 1:
                kept += small
                continue
            entries = [
                copy_entry(entry, ManifestEntryStatus.EXISTING, self._snapshot_id)
                for manifest in small
                for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=True)
            ]
            if entries:
                kept.append(self._write(entries, spec_id))
        return kept

    def _write(self, entries: Iterable[ManifestEntry], spec_id: int) -> ManifestFile:
        path = f"{self._table.location()}/metadata/{uuid.uuid4()}-m0.avro"
        with write_manifest(
            format_version=FORMAT_VERSION,
            spec=self._table.metadata.specs()[spec_id],
            schema=self._schema,
            output_file=self._table.io.new_output(path),
            snapshot_id=self._snapshot_id,
            avro_compression=AVRO_CODEC,
        ) as writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()
