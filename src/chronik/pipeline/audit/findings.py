"""What an audit finds: each finding is one sentence and the exact place that it is about."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class Kind(StrEnum):
    """The values are what programs get to see (`--json`): they never change their meaning."""

    CHECKSUM = "checksum"
    """The bytes of a batch are not those that were written."""
    HEADER = "header"
    """Where a batch is due there is none, or one whose own fields cannot be true."""
    MISSING_RECORDS = "missing_records"
    """Offsets below the high watermark that a replica has no records of."""
    DUPLICATE_BATCH = "duplicate_batch"
    """Offsets, or a producer's batch, that are there once more."""
    EPOCH = "epoch"
    """Leader epochs out of order, or other than the history of epochs says."""
    SHORT_LOG = "short_log"
    """A replica that is in sync ends before the high watermark."""
    DIVERGED = "diverged"
    """Replicas hold different things at the same offset."""
    LOST_ROW = "lost_row"
    """A record that has landed, but its row is in no table."""
    DUPLICATE_ROW = "duplicate_row"
    FOREIGN_ROW = "foreign_row"
    """A row that no record has."""
    DIFFERENT_ROW = "different_row"
    """A row that is not what its record says."""
    UNJUDGED_ROW = "unjudged_row"
    """A row whose record no replica can give, since all of them are damaged there."""
    TABLE_FILE = "table_file"
    """A file of a table cannot be read, or is not there."""
    COMMITTED_OFFSET = "committed_offset"
    STATE = "state"
    """Nodes do not hold the same metadata, or a node's is damaged."""


def first_line(error: Exception) -> str:
    """Returns what an error says. Libraries write more lines below it, of places in their own code."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    says: str
    topic: str | None = None
    partition: int | None = None
    node: int | None = None
    offset: int | None = None
    end_offset: int | None = None
    """The offset after the last one that it is about."""
    file: str | None = None
    position: int | None = None
    """The position in the file, in bytes."""

    @property
    def where(self) -> str:
        """As much of the place as is known, in a few words."""
        parts = []
        if self.topic is not None:
            parts.append(self.topic if self.partition is None else f"{self.topic}-{self.partition}")
        if self.node is not None:
            parts.append(f"node {self.node}")
        if self.offset is not None:
            parts.append(f"offset {self.offset}")
        return ", ".join(parts)

    @property
    def source(self) -> str | None:
        """The file, and where in it."""
        return self.file if self.position is None else f"{self.file}, byte {self.position}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def covers(self, offset: int) -> bool:
        return self.offset is not None and self.offset <= offset < (self.end_offset or self.offset + 1)


class Place(NamedTuple):
    """A replica, as findings name it."""

    topic: str
    partition: int
    node: int

    def finding(self, kind: Kind, says: str, **more: int | str | None) -> Finding:
        return Finding(kind, says, self.topic, self.partition, self.node, **more)  # type: ignore[arg-type]
