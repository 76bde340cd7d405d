"""What clients did and saw, and when: the evidence that the checkers judge. One line of JSON per event on disk.

A record is known by its id: who sent it, and the how-manieth of that producer it was. Its value carries both, and a
checksum that covers the key too, so that a reader knows what it holds without asking anyone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec
from crc32c import crc32c


class RecordId(NamedTuple):
    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.producer}#{self.number}"


class Place(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


UNREADABLE = RecordId("", -1)
"""The id of a record that no producer of ours wrote as it stands there."""

NO_EPOCH = -1


class Event(msgspec.Struct, frozen=True, tag=True, kw_only=True, omit_defaults=True):
    at: float = 0.0
    """Seconds of one monotonic clock, that of the process all clients run in."""


class Promised(Event, frozen=True):
    """What holds for a topic, by the settings of its producers and consumers."""

    topic: str
    partitions: int
    is_ordered: bool = False
    """Each producer's records, of one key if they have any, stand in the order they were sent in: the next is sent when
    the one before is settled, or they are numbered (idempotence)."""
    is_once: bool = False
    """No record stands there twice, and not even those of unknown outcome are out of order: idempotence."""
    groups: tuple[str, ...] = ()
    """Consumer groups that have read all of it at the end."""
    copies_of: str | None = None
    """Every record is a copy of one of that topic, written in a transaction: not every offset holds one."""


class Sent(Event, frozen=True):
    id: RecordId
    topic: str
    key: str | None = None
    transaction: str | None = None
    """Whose records are acknowledged, or fail, all together."""


class Acknowledged(Event, frozen=True):
    id: RecordId
    place: Place
    offset: int | None
    """None: the answer to a repeated batch did not say it."""


class Failed(Event, frozen=True):
    """Certainly not written: it never left the client, or its only attempt was refused before the log was touched."""

    id: RecordId
    error: str


class Unknown(Event, frozen=True):
    """Written, or not, or written later."""

    id: RecordId
    error: str


class Consumed(Event, frozen=True):
    reader: str
    group: str | None
    """None: a reader on its own."""
    assignment: int
    """Counts how often the reader was given partitions: within one assignment it reads on without a gap."""
    place: Place
    offset: int
    id: RecordId
    epoch: int = NO_EPOCH


class EndSeen(Event, frozen=True):
    """A client asked where a partition ends (ListOffsets). `at` is when the answer came."""

    reader: str
    place: Place
    asked_at: float
    end: int


class Committed(Event, frozen=True):
    """Where a group stands at the end."""

    group: str
    place: Place
    offset: int


class Answer(Event, frozen=True):
    """One node was asked something by itself. `at` is when its answer had come."""

    node: int
    asked_at: float


class WatermarkSeen(Answer, frozen=True):
    """Fetch: how far consumers may read."""

    place: Place
    watermark: int


class CommitSeen(Answer, frozen=True):
    """OffsetFetch."""

    group: str
    offset: int


class Led(NamedTuple):
    """A partition, as Metadata tells of it."""

    leader: int
    epoch: int


class TopicSeen(Answer, frozen=True):
    """Metadata. A topic that the node does not know has no partitions; what it refuses to tell is not noted at all."""

    topic: str
    partitions: tuple[Led, ...] = ()


class RecordsSeen(Answer, frozen=True):
    """Fetch: there were records in the topic."""

    topic: str


class CommitAcknowledged(Event, frozen=True):
    """Of a group whose commits only grow, each sent once, when nothing is left to wait for of the one before."""

    group: str
    offset: int


class TopicCreated(Event, frozen=True):
    """It was acknowledged. Names are used once."""

    topic: str


class DeletionSent(Event, frozen=True):
    topic: str


class TopicDeleted(Event, frozen=True):
    """It was acknowledged."""

    topic: str


class NodeStarted(Event, frozen=True):
    """`at` is when its process was started."""

    node: int


class FinalRead(Event, frozen=True):
    """After all faults, this reader reads all of a partition, from `start` to before `end`."""

    reader: str
    place: Place
    start: int
    end: int


class ClientBroken(Event, frozen=True):
    """A client that gave up for good."""

    client: str
    error: str


class FaultBegan(Event, frozen=True):
    number: int
    kind: str
    what: str
    recovery_s_max: float | None = None
    """When it is over, every partition has to acknowledge again after so long."""
    demands_progress: bool = False
    """The others can go on: a minority is hit, and all replicas were in sync before."""


class FaultEnded(Event, frozen=True):
    number: int
    progressed_s: float | None = None
    """After so long every partition had acknowledged records that were sent after the fault began."""


AnyEvent: TypeAlias = (
    Promised
    | Sent
    | Acknowledged
    | Failed
    | Unknown
    | Consumed
    | EndSeen
    | Committed
    | WatermarkSeen
    | CommitSeen
    | TopicSeen
    | RecordsSeen
    | CommitAcknowledged
    | TopicCreated
    | DeletionSent
    | TopicDeleted
    | NodeStarted
    | FinalRead
    | ClientBroken
    | FaultBegan
    | FaultEnded
)

E = TypeVar("E", bound=Event)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


class Journal:
    """The events of a run, in memory and in a file. Any thread may add to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb")
        self._lock = threading.Lock()
        self._events: list[AnyEvent] = []

    def add(self, event: AnyEvent) -> None:
        with self._lock:
            self._events.append(event)
            self._file.write(_encoder.encode(event) + b"\n")

    def events(self) -> list[AnyEvent]:
        """All so far."""
        with self._lock:
            return list(self._events)

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> list[AnyEvent]:
    with path.open("rb") as lines:
        return [_decoder.decode(line) for line in lines]


def now() -> float:
    return time.monotonic()


def encode_value(record: RecordId, key: str | None, padding: int = 0) -> bytes:
    told = f"{record.producer} {record.number}"
    return f"{told} {_checksum(told, key):08x} {'.' * padding}".encode()


def decode_value(value: bytes | None, key: bytes | None) -> RecordId:
    """UNREADABLE unless the value is whole and belongs to that key."""
    try:
        producer, number, checksum, _ = (value or b"").decode().split(" ")
        readable_key = None if key is None else key.decode()
        if int(checksum, 16) == _checksum(f"{producer} {number}", readable_key):
            return RecordId(producer, int(number))
    except ValueError:  # UnicodeDecodeError is one too
        pass
    return UNREADABLE


def _checksum(told: str, key: str | None) -> int:
    checksum: int = crc32c(f"{told} {'' if key is None else '=' + key}".encode())
    return checksum


def of_kind(events: Iterable[AnyEvent], kind: type[E]) -> Iterator[E]:
    return (event for event in events if isinstance(event, kind))
