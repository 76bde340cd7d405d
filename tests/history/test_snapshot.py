"""Snapshots of the history: what survives a restart, and damaged files."""

from __future__ import annotations

import math
import random

import msgspec
import pytest

from chronik.history import snapshot as snapshots
from chronik.history.metrics import SUBJECTS_MAX, Scope, list_scope_metrics
from chronik.history.series import RESOLUTIONS, Reading
from chronik.history.snapshot import (
    SNAPSHOT_BYTES_MAX,
    HistorySnapshot,
    InvalidHistorySnapshot,
    ScopeSnapshot,
    SubjectSnapshot,
    encode_snapshot,
    restore_snapshot,
    take_snapshot,
)
from chronik.history.store import HistoryStore
from tests import run_size

NOW_S = 1_700_000_000.0


def record(store: HistoryStore, at_s: float, lag: float) -> None:
    for _ in store.tables[Scope.GROUP].record(at_s, at_s, 10, {("billing",): Reading((lag,))}):
        pass


def values(store: HistoryStore, level: int = 0) -> list[float | None]:
    resolution = RESOLUTIONS[level]
    start = int(NOW_S) // resolution.step_s - resolution.slots // 2
    found = store.tables[Scope.GROUP].read(("billing",), "group_lag", resolution, start, resolution.slots)
    return [None if math.isnan(each) else each for each in found]


@pytest.fixture
def store() -> HistoryStore:
    created = HistoryStore()
    for number in range(100):
        record(created, NOW_S - 10 * (99 - number), float(number))
    return created


def test_restored_history_equals_the_stored_one_and_continues_after_a_gap(store: HistoryStore) -> None:
    restored = HistoryStore()
    restore_snapshot(restored, encode_snapshot(take_snapshot(store)))
    for level in range(len(RESOLUTIONS)):
        assert values(restored, level) == values(store, level)
    assert restored.tables[Scope.GROUP].scores == store.tables[Scope.GROUP].scores
    record(restored, NOW_S + 60, 7.0)
    assert [each for each in values(restored) if each is not None][-2:] == [99.0, 7.0]
    latest = values(restored).index(99.0)
    assert values(restored)[latest + 1 : latest + 6] == [None] * 5


def test_every_damaged_byte_is_detected(store: HistoryStore) -> None:
    data = encode_snapshot(take_snapshot(store))
    generator = random.Random(run_size.SEED)
    positions = [*range(16), *(generator.randrange(len(data)) for _ in range(run_size.sized(50, 5000)))]
    for position in positions:
        damaged = bytearray(data)
        damaged[position] ^= 1 << generator.randrange(8)
        restored = HistoryStore()
        with pytest.raises(InvalidHistorySnapshot):
            restore_snapshot(restored, bytes(damaged))
        assert not any(map(len, restored.tables.values()))
    for length in (0, 3, 8, 100, len(data) - 1):
        with pytest.raises(InvalidHistorySnapshot):
            restore_snapshot(HistoryStore(), data[:length])


@pytest.mark.parametrize(
    "table",
    [
        ScopeSnapshot(9, (), 1, ()),
        ScopeSnapshot(Scope.GROUP, ("group_lag",), 1, (SubjectSnapshot(("a",), 1.0, (b"short",)),)),
        ScopeSnapshot(Scope.GROUP, ("group_lag",), 1, (SubjectSnapshot(("a",), 1.0, ()),)),
        ScopeSnapshot(Scope.GROUP, (), 1, (SubjectSnapshot(("a", "b"), 1.0, ()),)),
        ScopeSnapshot(Scope.GROUP, (), 1, tuple(SubjectSnapshot((str(each),), 1.0, ()) for each in range(251))),
    ],
)
def test_invalid_series_are_rejected(store: HistoryStore, table: ScopeSnapshot) -> None:
    data = encode_snapshot(msgspec.structs.replace(take_snapshot(store), tables=(table,)))
    with pytest.raises(InvalidHistorySnapshot, match="a series is invalid"):
        restore_snapshot(HistoryStore(), data)


def test_snapshot_with_other_resolutions_is_rejected(store: HistoryStore) -> None:
    other = HistorySnapshot(((20, 360, 0),), "little", ())
    with pytest.raises(InvalidHistorySnapshot, match="it has other resolutions"):
        restore_snapshot(HistoryStore(), encode_snapshot(other))


def test_metrics_of_another_version_are_gaps(store: HistoryStore) -> None:
    taken = take_snapshot(store)
    renamed = tuple(msgspec.structs.replace(each, metrics=("earlier_name",)) for each in taken.tables)
    restored = HistoryStore()
    restore_snapshot(restored, encode_snapshot(msgspec.structs.replace(taken, tables=renamed)))
    assert set(values(restored)) == {None}


def test_largest_snapshot_is_below_the_limit() -> None:
    store = HistoryStore()
    for scope, table in store.tables.items():
        number = SUBJECTS_MAX[scope]
        names = snapshots._NAMES[scope]
        reading = Reading(tuple(1.0 for _ in list_scope_metrics(scope)))
        readings = {tuple(f"{each:0>512}" for _ in range(names)): reading for each in range(number)}
        for _ in table.record(NOW_S, NOW_S, 10, readings):
            pass
    assert len(encode_snapshot(take_snapshot(store))) < SNAPSHOT_BYTES_MAX / 2
