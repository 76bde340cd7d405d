"""Events of clients, with times: the input of the checkers. One line of JSON per event on disk.

A record is identified by its producer and a number. Its value contains both, and a checksum that also covers the key,
so that a reader can verify it without other information.
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
    """The producer of a record and the record's number."""

    producer: str
    number: int

    def __str__(self) -> str:
        return f"{self.producer}#{self.number}"


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


UNREADABLE = RecordId("", -1)
"""The id of a record that does not match its checksum."""

NO_EPOCH = -1


class Event(msgspec.Struct, frozen=True, tag=True, kw_only=True, omit_defaults=True):
    """The base of all events."""

    at: float = 0.0
    """Time in seconds of the monotonic clock of the test process."""


class Promised(Event, frozen=True):
    """The guarantees of a topic, according to the settings of its producers and consumers."""

    topic: str
    partitions: int
    is_ordered: bool = False
    """Whether the records of each producer (of one key, if they have keys) are in the order in which they were sent."""
    is_once: bool = False
    """Whether no record is duplicated, and even records of unknown outcome are in order (idempotence)."""
    groups: tuple[str, ...] = ()
    """Consumer groups that must have read the whole topic at the end."""
    copies_of: str | None = None
    """The topic whose records are copied here in transactions. Then some offsets hold markers."""


class Sent(Event, frozen=True):
    """A producer sent a record."""

    id: RecordId
    topic: str
    key: str | None = None
    transaction: str | None = None
    """The transaction whose records are acknowledged or fail together."""


class Acknowledged(Event, frozen=True):
    """A record was acknowledged."""

    id: RecordId
    place: Place
    offset: int | None
    """The offset, or None if the response to a repeated batch did not contain it."""


class Failed(Event, frozen=True):
    """A record was definitely not written: it was never sent, or its only attempt was rejected before the write."""

    id: RecordId
    error: str


class Unknown(Event, frozen=True):
    """A record of unknown outcome, which may also be written later."""

    id: RecordId
    error: str


class Consumed(Event, frozen=True):
    """A reader received a record."""

    reader: str
    group: str | None
    """The group of the reader, or None for a reader without a group."""
    assignment: int
    """The number of the reader's partition assignment. Within one assignment, it reads without gaps."""
    place: Place
    offset: int
    id: RecordId
    epoch: int = NO_EPOCH


class EndSeen(Event, frozen=True):
    """A client received the end offset of a partition (ListOffsets). `at` is the time of the response."""

    reader: str
    place: Place
    asked_at: float
    end: int


class Committed(Event, frozen=True):
    """The committed offset of a group at the end."""

    group: str
    place: Place
    offset: int


class Answer(Event, frozen=True):
    """A response of one node. `at` is the time of the response."""

    node: int
    asked_at: float


class WatermarkSeen(Answer, frozen=True):
    """A high watermark (Fetch)."""

    place: Place
    watermark: int


class CommitSeen(Answer, frozen=True):
    """A committed offset (OffsetFetch)."""

    group: str
    offset: int


class PartitionLeader(NamedTuple):
    """The leader of a partition, according to Metadata."""

    leader: int
    epoch: int


class TopicSeen(Answer, frozen=True):
    """A Metadata response for a topic. An unknown topic has no partitions; other errors are not recorded."""

    topic: str
    partitions: tuple[PartitionLeader, ...] = ()


class RecordsSeen(Answer, frozen=True):
    """A Fetch response with records of the topic."""

    topic: str


class CommitAcknowledged(Event, frozen=True):
    """A commit of a group was acknowledged. The group's commits only grow, and each is sent once."""

    group: str
    offset: int


class TopicCreated(Event, frozen=True):
    """The creation of a topic was acknowledged. Topic names are used once."""

    topic: str


class DeletionSent(Event, frozen=True):
    """The deletion of a topic was requested."""

    topic: str


class TopicDeleted(Event, frozen=True):
    """The deletion of a topic was acknowledged."""

    topic: str


class NodeStarted(Event, frozen=True):
    """A node was started. `at` is the start of its process."""

    node: int


class FinalRead(Event, frozen=True):
    """A reader reads a whole partition after all faults, from `start` to before `end`."""

    reader: str
    place: Place
    start: int
    end: int


class ClientBroken(Event, frozen=True):
    """A client failed permanently."""

    client: str
    error: str


class FaultBegan(Event, frozen=True):
    """A fault began."""

    number: int
    kind: str
    what: str
    recovery_s_max: float | None = None
    """Time limit for every partition to acknowledge records after the fault, if any."""
    demands_progress: bool = False
    """Whether the cluster must stay available: a minority is faulty, and all replicas were in sync before."""


class FaultEnded(Event, frozen=True):
    """A fault ended."""

    number: int
    progressed_s: float | None = None
    """Time after which every partition had acknowledged records that were sent after the fault began."""


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
    """The events of a run, in memory and in a file. Thread-safe."""

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
        """Return a copy of all events so far."""
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
    text = f"{record.producer} {record.number}"
    return f"{text} {_checksum(text, key):08x} {'.' * padding}".encode()


def decode_value(value: bytes | None, key: bytes | None) -> RecordId:
    """Return the id of a record, or UNREADABLE if the value is damaged or belongs to another key."""
    try:
        producer, number, checksum, _ = (value or b"").decode().split(" ")
        readable_key = None if key is None else key.decode()
        if int(checksum, 16) == _checksum(f"{producer} {number}", readable_key):
            return RecordId(producer, int(number))
    except ValueError:  # includes UnicodeDecodeError
        pass
    return UNREADABLE


def _checksum(text: str, key: str | None) -> int:
    checksum: int = crc32c(f"{text} {'' if key is None else '=' + key}".encode())
    return checksum


def events_of_type(events: Iterable[AnyEvent], kind: type[E]) -> Iterator[E]:
    return (event for event in events if isinstance(event, kind))
