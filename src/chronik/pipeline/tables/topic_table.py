"""What the pipeline needs of a table format. Whoever uses a table has a `TopicTable`, and gets it from `opening`.

Delta is the one format there is (the room `delta`). Another one has to keep a topic's offsets in the commits of its
rows: in Iceberg they would be properties of a snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from chronik.errors import ChronikError
from chronik.pipeline.tables.files import FrozenTable, LiveFile, TableFiles
from chronik.pipeline.tables.layout import Kind, Partitioning
from chronik.pipeline.tables.spans import Landed, WrittenFile
from chronik.pipeline.tables.storage import Storage
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
    spec: TableSpec
    next_offsets: dict[int, int]
    """By partition; those that never landed are not in it."""
    file_uris: tuple[str, ...]
    frozen: FrozenTable

    @property
    def uri(self) -> str:
        return self.frozen.uri

    @property
    def schema(self) -> pa.Schema:
        return self.frozen.schema

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self.frozen.partition_by


@dataclass(frozen=True, slots=True)
class Committed:
    version: int
    """The table's version, at this commit or after it."""
    next_offsets: dict[int, int]
    """Next offsets of the partitions that landed."""
    rows: int
    """Rows that this call added: 0 when everything was there already."""
    present: tuple[Landed, ...]
    """What was left out, because its records were there."""


class TopicTable(Protocol):
    """One table, one user's view of it. Any number of them, anywhere, may work on the same table at the same time; each
    thread has its own. Every method looks at the table afresh, and raises TableMissing when it is gone."""

    @property
    def uri(self) -> str: ...

    @property
    def storage(self) -> Storage: ...

    @property
    def spec(self) -> TableSpec:
        """Raises TableDiffers when the table is not of a topic, as everything does that concerns offsets."""

    # What it holds

    def snapshot(self) -> Snapshot: ...

    def next_offsets(self) -> dict[int, int]:
        """Returns them as in a snapshot, without listing the files."""

    def frozen(self) -> FrozenTable:
        """Returns where it is and which columns it has by now: what a task needs to write to it."""

    def files(self) -> TableFiles:
        """Returns all files of the present version. Raises TableDiffers when they do not hold just their rows."""

    # What is added

    def commit(self, landed: Sequence[Landed]) -> Committed:
        """Commits all files and next offsets, or none. Raises CommitRefused, CommitFailed."""

    def append_numbered(self, files: Sequence[WrittenFile], sequence: str, number: int) -> None:
        """Appends beside the offsets, as number `number` of a sequence that counts from 0. Raises Superseded when that
        number is taken, CommitRefused, CommitFailed."""

    def next_number(self, sequence: str) -> int:
        """Returns what `append_numbered` expects next."""

    def add_columns(self, fields: Sequence[pa.Field]) -> Evolved:
        """Adds those that can be added; the answer's schema is the one to decode against. Raises CommitFailed."""

    # How it is kept tidy

    def replace(self, removed: Sequence[LiveFile], written: Sequence[WrittenFile], *, rows_change: bool) -> bool:
        """Says whether the table has the new files instead of the old ones. It has not when another took an old one
        away, or a vacuum took a new one for an orphan (then all new ones are gone); when the answer got lost it may
        have: look again. `rows_change`: for readers that follow the table's changes. Raises CommitFailed."""

    def remove_unused(self, hours: int, *, orphans: bool, dry_run: bool = False) -> list[str]:
        """Removes files that no version of these hours names any more, and those that none ever did if `orphans` are
        meant too. Returns their paths."""
