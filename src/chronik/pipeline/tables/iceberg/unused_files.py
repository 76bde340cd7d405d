"""Snapshots of a table that may expire, and files that no snapshot refers to.

Files that are written but not committed yet look like orphans. Callers protect them by their age, as in Delta tables:
see `table_files`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from pyarrow import fs
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from chronik.pipeline.tables.iceberg.data_files import to_path
from chronik.pipeline.tables.storage import TableStorage

METADATA_DIRECTORY: Final = "metadata"
METADATA_SUFFIXES: Final = (".avro", ".metadata.json")
"""Suffixes of metadata files that may be deleted. Other files belong to the catalog or to other tools."""


def list_expirable_snapshots(metadata: TableMetadata, before_ms: int) -> list[Snapshot]:
    """Return the snapshots that were replaced before a time, except the heads of branches and tags.

    A snapshot is current until the next one is committed, so it is its successor's time that counts.
    """
    protected = {each.snapshot_id for each in metadata.refs.values()}
    ordered = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0)
    return [
        each
        for each, successor in pairwise(ordered)
        if each.snapshot_id not in protected and successor.timestamp_ms < before_ms
    ]


def list_reachable_files(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """Return the locations of all files that snapshots refer to: manifest lists, manifests and data files."""
    found: set[str] = set()
    manifests: set[str] = set()
    for snapshot in snapshots:
        found.add(to_path(snapshot.manifest_list))
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in manifests:
                manifests.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                found.update(to_path(entry.data_file.file_path) for entry in entries)
    return found | set(map(to_path, manifests))


def list_metadata_files(table: Table) -> set[str]:
    """Return the locations of the files of the table's own metadata, and of statistics of its snapshots."""
    metadata = table.metadata
    own = [table.metadata_location, *(each.metadata_file for each in metadata.metadata_log)]
    return {to_path(each) for each in [*own, *(each.statistics_path for each in metadata.statistics)]}


def list_old_files(storage: TableStorage, before_s: float, suffixes: tuple[str, ...] = ("",)) -> list[str]:
    """Return the paths of files with one of the suffixes that were written before a time, in all directories."""
    selector = fs.FileSelector(storage.full_path(""), allow_not_found=True, recursive=True)
    return sorted(
        info.path.removeprefix(storage.full_path("")).lstrip("/")
        for info in storage.filesystem.get_file_info(selector)
        if info.type is fs.FileType.File
        and info.path.endswith(suffixes)
        and info.mtime is not None
        and info.mtime.timestamp() < before_s
    )
