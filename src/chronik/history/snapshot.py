"""The history as bytes with a checksum, so that it survives a restart of the node."""

from __future__ import annotations

import struct
import sys
from typing import Final

import msgspec

from chronik.crc import crc32c
from chronik.errors import ChronikError
from chronik.history.metrics import SUBJECTS_MAX, Scope
from chronik.history.series import RESOLUTIONS, SLOTS, SeriesTable, Subject
from chronik.history.store import HistoryStore
from chronik.limits import MIB

SNAPSHOT_BYTES_MAX: Final = 16 * MIB
"""Maximum size of a snapshot that is read: all series take 4 MB, and their names at most 1 MB."""

_HEADER: Final = struct.Struct(">4sI")
_MAGIC: Final = b"CHH1"
_SHAPE: Final = tuple((each.step_s, each.slots, each.offset) for each in RESOLUTIONS)
_NAMES: Final = {Scope.NODE: 0, Scope.REPLICAS: 0, Scope.TOPIC: 1, Scope.GROUP: 1, Scope.GROUP_TOPIC: 2}
"""The number of names of a subject, by scope."""


class InvalidHistorySnapshot(ChronikError):
    """A snapshot that is damaged, or of another version."""


class SubjectSnapshot(msgspec.Struct, array_like=True, frozen=True):
    """The series of a subject."""

    subject: Subject
    score: float
    series: tuple[bytes, ...]


class ScopeSnapshot(msgspec.Struct, array_like=True, frozen=True):
    """The series of a scope."""

    scope: int
    metrics: tuple[str, ...]
    slot: int
    rows: tuple[SubjectSnapshot, ...]


class HistorySnapshot(msgspec.Struct, array_like=True, frozen=True):
    """All series of a node, and the shape of its ring buffers."""

    resolutions: tuple[tuple[int, int, int], ...]
    byte_order: str
    tables: tuple[ScopeSnapshot, ...]


def take_snapshot(store: HistoryStore) -> HistorySnapshot:
    """Copy all series, which takes about a millisecond."""
    tables = (_copy_table(scope, table) for scope, table in store.tables.items())
    return HistorySnapshot(_SHAPE, sys.byteorder, tuple(each for each in tables if each))


def _copy_table(scope: Scope, table: SeriesTable) -> ScopeSnapshot | None:
    if table.slot is None:
        return None
    rows = (SubjectSnapshot(subject, score, series) for subject, score, series in table.dump())
    return ScopeSnapshot(scope, table.metric_names, table.slot, tuple(rows))


def encode_snapshot(snapshot: HistorySnapshot) -> bytes:
    """Return the bytes of a snapshot, with a checksum."""
    payload = msgspec.msgpack.encode(snapshot)
    return _HEADER.pack(_MAGIC, crc32c(payload)) + payload


def restore_snapshot(store: HistoryStore, data: bytes) -> None:
    """Load the series of an encoded snapshot into an empty store.

    Raises:
        InvalidHistorySnapshot: The snapshot is damaged, or of another version. The store is unchanged.
    """
    payload = memoryview(data)[_HEADER.size :]
    if len(data) < _HEADER.size or _HEADER.unpack_from(data) != (_MAGIC, crc32c(payload)):
        raise InvalidHistorySnapshot("its checksum or format is wrong")
    try:
        snapshot = msgspec.msgpack.decode(payload, type=HistorySnapshot)
    except msgspec.DecodeError as error:
        raise InvalidHistorySnapshot(f"it cannot be decoded: {error}") from error
    if snapshot.resolutions != _SHAPE or snapshot.byte_order != sys.byteorder:
        raise InvalidHistorySnapshot("it has other resolutions")
    if not all(map(_is_valid, snapshot.tables)):
        raise InvalidHistorySnapshot("a series is invalid")
    for table in snapshot.tables:
        for row in table.rows:
            series = dict(zip(table.metrics, row.series, strict=True))
            store.tables[Scope(table.scope)].restore(table.slot, row.subject, row.score, series)


def _is_valid(table: ScopeSnapshot) -> bool:
    return (
        table.scope in list(Scope)
        and len(table.rows) <= SUBJECTS_MAX[Scope(table.scope)]
        and all(
            len(row.subject) == _NAMES[Scope(table.scope)]
            and len(row.series) == len(table.metrics)
            and all(len(each) == 4 * SLOTS for each in row.series)
            for row in table.rows
        )
    )
