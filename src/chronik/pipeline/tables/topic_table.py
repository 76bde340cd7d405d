"""What the pipeline needs of a table format.

Delta is the one there is (`delta.DeltaCommitter`). Iceberg is missing: its offsets would go into snapshot properties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from chronik.errors import ChronikError
from chronik.pipeline.tables.layout import Kind, Partitioning
from chronik.pipeline.tables.spans import Landed, WrittenFile
from chronik.pipeline.tables.values.growth import Evolved


class TableError(ChronikError):
    """A table cannot be used as it is; the message says why."""


class TableMissing(TableError):
    """There is no table at this place."""


class TableDiffers(TableError):
    """There is a table, but of another topic or of another kind."""


class TableTorn(TableError):
    """A power cut has taken the content of an entry of its log: without it rows would be missing in silence."""


class CommitFailed(TableError):
    """A commit did not go through within its attempts. What it held may be written again: nothing is lost."""


class Superseded(TableError):
    """Another has committed this number of a numbered sequence: read the table again before deciding what to append."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What a table is for; written into it when it is created, compared when it is opened."""

    topic: str
    topic_id: str
    """As `format_id` gives it. A topic that is deleted and created again starts at offset 0 again: it gets a table of
    its own, or offsets would stand for two records."""
    kind: Kind = Kind.RAW
    partitioning: Partitioning = Partitioning.DATE


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a table: these files hold the records below these offsets, and no other."""

    version: int
    next_offsets: dict[int, int]
    """By partition; those that never landed are not in it."""
    file_uris: tuple[str, ...]
    schema: pa.Schema
    partition_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    version: int
    """The table's, at this commit or after it."""
    next_offsets: dict[int, int]
    """Of the partitions that landed."""
    rows: int
    """That this call added: 0 when everything was there already."""
    present: tuple[Landed, ...]
    """What was left out, because its records were there."""


class Committer(Protocol):
    """One table, one writer's view of it. Any number of them, anywhere, may work on the same table at the same time."""

    uri: str
    spec: TableSpec

    def snapshot(self) -> Snapshot: ...

    def next_offsets(self) -> dict[int, int]:
        """As in a snapshot, without listing the files."""

    def commit(self, landed: Sequence[Landed]) -> Committed:
        """All files and next offsets, or none. Raises CommitRefused, CommitFailed."""

    def append_numbered(self, files: Sequence[WrittenFile], sequence: str, number: int) -> None:
        """Appends beside the offsets, as number `number` of a sequence that counts from 0. Raises Superseded when that
        number is taken, CommitRefused, CommitFailed."""

    def next_number(self, sequence: str) -> int:
        """What `append_numbered` expects next."""

    def add_columns(self, fields: Sequence[pa.Field]) -> Evolved:
        """Adds those that can be added; the answer's schema is the one to decode against. Raises CommitFailed."""
