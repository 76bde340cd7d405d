"""Events of transactional clients and readers, with times: the input of `checkers`.

They have the same base as the events of tests/chaos, so that a history can contain both.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeAlias

from tests.chaos.history import NO_EPOCH, Event, Place, RecordId

NO_OFFSET = -1
"""An offset that the response did not contain."""


class TransactionId(NamedTuple):
    """The instance of a client and the number of its transaction.

    A client that restarts under the same transactional id is a new instance.
    """

    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.producer}:{self.number}"


class Source(NamedTuple):
    """The input record of a copied record. The group commits how far it has copied."""

    group: str
    place: Place
    offset: int

    def __str__(self) -> str:
        return f"{self.place}@{self.offset} for {self.group}"


class Outcome(Enum):
    """The outcome of a transaction, as its client knows it."""

    COMMITTED = "committed"
    """The commit was acknowledged."""
    ABORTED = "aborted"
    """The abort was acknowledged, or no commit was requested, or the only commit request was rejected."""
    UNKNOWN = "unknown"
    """A commit was requested, and no response settled its outcome."""


class Begun(Event, frozen=True):
    """A client started a transaction."""

    transaction: TransactionId
    transactional_id: str
    is_v2: bool = False
    """Whether each transaction has its own epoch (transactions version 2)."""


class SentInTransaction(Event, frozen=True):
    """A client sent a record. It requests the commit only when all its records are acknowledged."""

    id: RecordId
    transaction: TransactionId
    place: Place
    source: Source | None = None


class OffsetStaged(Event, frozen=True):
    """A client sent a group's offset as a part of a transaction. The offsets of one group and partition only grow."""

    transaction: TransactionId
    group: str
    place: Place
    offset: int


class Ended(Event, frozen=True):
    """A client ended a transaction. `at` is the time of the response."""

    transaction: TransactionId
    outcome: Outcome


class Straggled(Event, frozen=True):
    """A request of a v1 client arrived while its client was in a later transaction with the same epoch.

    Nothing in the request distinguishes it from a request of the later transaction.
    """

    transaction: TransactionId
    kind: str
    touched: TransactionId
    """The client's transaction at that time."""


class Seen(Event, frozen=True, kw_only=True):
    """A response that a reader got from a node. `at` is the time of the response."""

    reader: str
    node: int
    asked_at: float
    place: Place


class Read(Seen, frozen=True):
    """All records that a reader got in an offset range."""

    is_committed: bool
    """Whether the isolation level is read_committed."""
    start: int
    end: int
    """The next offset to read. The reader gets no more records below it."""
    records: tuple[tuple[int, RecordId], ...] = ()
    stable: int = NO_OFFSET
    """The last stable offset of the response."""
    high_watermark: int = NO_OFFSET
    """The high watermark of the response."""
    is_final: bool = False
    """Whether this is the read of the whole partition through this node after all faults."""


class StableSeen(Seen, frozen=True):
    """A leader returned its last stable offset."""

    offset: int
    epoch: int = NO_EPOCH
    is_sure: bool = False
    """Whether the leader has caught up: its high watermark is past the start of its term."""


class OffsetSeen(Seen, frozen=True):
    """A linearizable OffsetFetch of stable offsets."""

    group: str
    offset: int
    """The committed offset, or UNTOLD if there is none."""
    is_final: bool = False


class RecordsDeleted(Event, frozen=True):
    """Records were deleted on request. From now on, they may be missing."""

    place: Place
    before: int


class TopicGone(Event, frozen=True):
    """A topic was deleted. A topic created again under the same name is a different one."""

    topic: str


TransactionEvent: TypeAlias = (
    Begun
    | SentInTransaction
    | OffsetStaged
    | Ended
    | Straggled
    | Read
    | StableSeen
    | OffsetSeen
    | RecordsDeleted
    | TopicGone
)
