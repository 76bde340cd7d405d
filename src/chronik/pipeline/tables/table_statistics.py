"""Statistics of a table, and the records of its maintenance that every table format stores in the table itself.

The records tell all drivers and commands when a table was last maintained, and whether another one maintains it now.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from chronik.pipeline.tables.table_files import LiveFile


class MaintenanceKind(StrEnum):
    """The kind of a maintenance. A table stores the last record of each kind."""

    COMPACTION = "compaction"
    """Small files were merged."""
    VACUUM = "vacuum"
    """Expired versions and unused files were deleted."""
    REBUILD = "rebuild"
    """All rows are decoded again, during which no other maintenance should replace files."""


@dataclass(frozen=True, slots=True)
class MaintenanceRecord:
    """A maintenance of a table. New fields need defaults, to read the records of earlier versions."""

    kind: MaintenanceKind
    at_ms: int
    """Time of the record in milliseconds since the epoch."""
    maintainer: str
    """The process that maintains the table."""
    lease_until_ms: int = 0
    """Time until which other processes should not maintain the table. It saves work and is not needed for safety."""
    files_removed: int = 0
    files_added: int = 0
    bytes_before: int = 0
    """Total size of the files that were replaced."""
    bytes_after: int = 0
    """Total size of the files that replaced them."""
    files_deleted: int = 0
    """Number of unused files that were deleted from the storage."""
    versions_expired: int = 0


def encode_maintenance_record(record: MaintenanceRecord) -> str:
    """Return a maintenance record as JSON, as tables store it."""
    return msgspec.json.encode(record).decode()


def decode_maintenance_record(text: str | bytes) -> MaintenanceRecord | None:
    """Return the maintenance record that a table stores, or None if it is in an unknown format."""
    try:
        return msgspec.json.decode(text, type=MaintenanceRecord)
    except msgspec.DecodeError:
        return None


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """The size, age and maintenance of a table's current version, from its metadata alone."""

    format: str
    """Name of the table format, such as `delta`."""
    version: int
    """The current version, or the number of the current snapshot."""
    versions_kept: int
    """Number of versions or snapshots that the table's metadata describes, with the current one."""
    metadata_files: int
    """Number of metadata files that readers open for the current version: entries of Delta's log since its last
    checkpoint, or manifests of an Iceberg snapshot."""
    created_ms: int
    """Creation time of the table in milliseconds since the epoch."""
    files: tuple[LiveFile, ...]
    """Data files of the current version."""
    oldest_data_ms: int | None
    """Lowest record timestamp in milliseconds, or None if no file has statistics."""
    newest_data_ms: int | None
    last_compaction: MaintenanceRecord | None
    """The last compaction by Chronik, or None if there was none or the table's history no longer contains it."""
    last_vacuum: MaintenanceRecord | None
    last_rebuild: MaintenanceRecord | None

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def rows(self) -> int | None:
        """Number of rows, or None if a file has no statistics."""
        counts = [file.rows for file in self.files]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def table_partitions(self) -> int:
        """Number of table partitions with files, such as days."""
        return len({file.partition_values for file in self.files})

    def count_small_files(self, small_bytes: int) -> int:
        """Return the number of files that are smaller than a size in bytes."""
        return sum(file.size_bytes < small_bytes for file in self.files)

    @property
    def maintenance_records(self) -> tuple[MaintenanceRecord, ...]:
        """The last record of each kind of maintenance."""
        records = (self.last_compaction, self.last_vacuum, self.last_rebuild)
        return tuple(record for record in records if record is not None)
