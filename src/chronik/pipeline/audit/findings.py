"""Findings of an audit: a problem, described in one sentence, and its exact location."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class FindingKind(StrEnum):
    """The kind of a problem found by an audit. The values are part of the `--json` output and stay stable."""

    CHECKSUM = "checksum"
    """The checksum of a batch does not match its bytes."""
    HEADER = "header"
    """No batch starts at the expected position, or its header is invalid."""
    MISSING_RECORDS = "missing_records"
    """A replica lacks records below the high watermark."""
    DUPLICATE_BATCH = "duplicate_batch"
    """A range of offsets, or a producer's batch, occurs twice in the log."""
    EPOCH = "epoch"
    """Leader epochs are out of order or contradict the leader epoch history."""
    SHORT_LOG = "short_log"
    """An in-sync replica ends before the high watermark."""
    DIVERGED = "diverged"
    """Replicas have different data at the same offset."""
    LOST_ROW = "lost_row"
    """A record counts as written to the table, but has no row there or in the dead-letter table."""
    DUPLICATE_ROW = "duplicate_row"
    FOREIGN_ROW = "foreign_row"
    """A row belongs to no record of the log."""
    DIFFERENT_ROW = "different_row"
    """A row differs from its record."""
    UNJUDGED_ROW = "unjudged_row"
    """A row cannot be verified, because its record is damaged on all replicas."""
    TABLE_FILE = "table_file"
    """A file of a table is missing or cannot be read."""
    COMMITTED_OFFSET = "committed_offset"
    STATE = "state"
    """The metadata images of two nodes differ, or a node's metadata is damaged."""


def extract_first_error_line(error: Exception) -> str:
    """Return the first line of an error message, without the stack trace that libraries append."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem found by an audit, with its location."""

    kind: FindingKind
    says: str
    """Description of the problem in one sentence."""
    topic: str | None = None
    partition: int | None = None
    node: int | None = None
    offset: int | None = None
    end_offset: int | None = None
    """Exclusive end of the affected offsets."""
    file: str | None = None
    position: int | None = None
    """Byte position in the file."""

    @property
    def location(self) -> str:
        """Topic, partition, node and offset as text; unknown ones are omitted."""
        parts = []
        if self.topic is not None:
            parts.append(self.topic if self.partition is None else f"{self.topic}-{self.partition}")
        if self.node is not None:
            parts.append(f"node {self.node}")
        if self.offset is not None:
            parts.append(f"offset {self.offset}")
        return ", ".join(parts)

    @property
    def file_position(self) -> str | None:
        """File path and byte position as text, or None if no file is affected."""
        return self.file if self.position is None else f"{self.file}, byte {self.position}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def covers(self, offset: int) -> bool:
        return self.offset is not None and self.offset <= offset < (self.end_offset or self.offset + 1)


class ReplicaId(NamedTuple):
    """A partition replica, identified by topic, partition and node."""

    topic: str
    partition: int
    node: int

    def make_finding(self, kind: FindingKind, says: str, **location: int | str | None) -> Finding:
        return Finding(kind, says, self.topic, self.partition, self.node, **location)  # type: ignore[arg-type]
