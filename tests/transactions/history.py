"""What transactional clients did and what readers saw, and when: the evidence that `checkers` judge.

The events are of the same make as those of tests/chaos, so that a journal may hold both.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeAlias

from tests.chaos.history import NO_EPOCH, Event, Place, RecordId

UNTOLD = -1
"""An offset that the reader was not told."""


class TransactionId(NamedTuple):
    """The how-manieth transaction of one instance of a client it was. A client that is started again under the same
    transactional id is another instance."""

    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.producer}:{self.number}"


class Source(NamedTuple):
    """What a copied record was made of: one record of a group's input. The group commits how far it has copied."""

    group: str
    place: Place
    offset: int

    def __str__(self) -> str:
        return f"{self.place}@{self.offset} for {self.group}"


class Outcome(Enum):
    COMMITTED = "committed"
    """It was told so."""
    ABORTED = "aborted"
    """It was told so, or never asked to commit it, or was refused at its only attempt."""
    UNKNOWN = "unknown"
    """It asked to commit it, and heard nothing that settles it."""


class Begun(Event, frozen=True):
    transaction: TransactionId
    transactional_id: str
    is_v2: bool = False
    """An epoch per transaction."""


class SentInTransaction(Event, frozen=True):
    """A client asks for the commit only when everything that it sent was acknowledged."""

    id: RecordId
    transaction: TransactionId
    place: Place
    source: Source | None = None


class OffsetStaged(Event, frozen=True):
    """A group's position, sent as a part of a transaction. Those of one group and place only grow."""

    transaction: TransactionId
    group: str
    place: Place
    offset: int


class Ended(Event, frozen=True):
    """`at` is when the client knew."""

    transaction: TransactionId
    outcome: Outcome


class Straggled(Event, frozen=True):
    """A request of a v1 client came to a node when its client had gone on to a later transaction of the same epoch,
    which nothing in the request tells apart from its own."""

    transaction: TransactionId
    kind: str
    touched: TransactionId
    """The one that its client was at then."""


class Seen(Event, frozen=True, kw_only=True):
    """Something that one node told a reader. `at` is when the answer had come."""

    reader: str
    node: int
    asked_at: float
    place: Place


class Read(Seen, frozen=True):
    """All that the reader was given between two offsets."""

    is_committed: bool
    """Whether it reads committed records only."""
    start: int
    end: int
    """Where it reads on: nothing else is to be seen below."""
    records: tuple[tuple[int, RecordId], ...] = ()
    stable: int = UNTOLD
    """The last stable offset that came with it."""
    high_watermark: int = UNTOLD
    """Up to where all could be read at that moment, decided or not."""
    is_final: bool = False
    """After all faults: from the first record that there is to the last, through this node."""


class StableSeen(Seen, frozen=True):
    """A leader told its last stable offset."""

    offset: int
    epoch: int = NO_EPOCH
    is_sure: bool = False
    """Its term has taken up all that earlier ones had committed: its high watermark is past where it began."""


class OffsetSeen(Seen, frozen=True):
    """OffsetFetch, of stable offsets, and linearizable."""

    group: str
    offset: int
    """UNTOLD when nothing is committed."""
    is_final: bool = False


class RecordsDeleted(Event, frozen=True):
    """On request. From now on nothing is promised about those that are there."""

    place: Place
    before: int


class TopicGone(Event, frozen=True):
    """It was deleted; one that is made again under its name is another place."""

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
