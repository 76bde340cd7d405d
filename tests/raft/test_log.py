"""The Raft log behaves like a list of entries, whatever is appended, replaced, persisted or compacted."""

from __future__ import annotations

import random

import pytest

from chronik.errors import InvariantError
from chronik.raft.entries import EntryKind, RaftEntry, SnapshotMetadata
from chronik.raft.events import Persist
from chronik.raft.log import RaftLog
from tests.raft.disk import SimulatedDisk


class Model:
    """A reference model with all entries; index 0 precedes the first entry."""

    def __init__(self) -> None:
        self.terms = [0]
        self.floor = 0

    def term(self, index: int) -> int | None:
        return self.terms[index] if self.floor <= index < len(self.terms) else None


def make_entries(first: int, terms: list[int]) -> list[RaftEntry]:
    return [RaftEntry(index, term, EntryKind.COMMAND, b"x" * (index % 7)) for index, term in enumerate(terms, first)]


@pytest.mark.parametrize("seed", range(30))
def test_log_matches_reference_model(seed: int) -> None:
    randomness = random.Random(seed)
    disk = SimulatedDisk()
    log = RaftLog(disk, disk.recovered())
    model = Model()
    writing: Persist | None = None
    for step in range(300):
        action = randomness.choice(("append", "append", "replace", "hand out", "persisted", "compact"))
        if action == "append":
            term = model.terms[-1] + randomness.choice((0, 0, 0, 1))
            terms = [term] * randomness.randrange(1, 4)
            log.append(make_entries(len(model.terms), terms))
            model.terms += terms
        elif action == "replace" and log.last_index > model.floor:
            first = randomness.randrange(model.floor + 1, len(model.terms))
            terms = [model.terms[-1] + 1] * randomness.randrange(1, 3)
            log.append(make_entries(first, terms))
            model.terms[first:] = terms
        elif action == "hand out" and writing is None and log.has_unpersisted:
            writing = Persist(sequence=step, entries=log.take_unpersisted_entries())
        elif action == "persisted" and writing is not None:
            disk.write(writing)
            log.mark_persisted()
            writing = None
        elif action == "compact" and writing is None and log.durable_index > model.floor:
            model.floor = randomness.randrange(model.floor, log.durable_index + 1)
            log.compact_through(model.floor)
        check(log, model, disk, randomness)


def check(log: RaftLog, model: Model, disk: SimulatedDisk, randomness: random.Random) -> None:
    last = len(model.terms) - 1
    assert (log.last_index, log.last_term, log.compacted_index) == (last, model.terms[-1], model.floor)
    assert [log.term_at(index) for index in range(last + 3)] == [model.term(index) for index in range(last + 3)]
    for index in range(model.floor + 1, log.durable_index + 1):
        assert disk.term(index) == model.terms[index], "durable entries must be on disk"
    if last > model.floor:
        first = randomness.randrange(model.floor + 1, last + 1)
        read = log.entries(first, last + 1, 120)
        assert read
        assert [(entry.index, entry.term) for entry in read] == [
            (index, model.terms[index]) for index in range(first, first + len(read))
        ]
    index, term = randomness.randrange(last + 2), randomness.randrange(model.terms[-1] + 2)
    fitting = [i for i in range(model.floor, min(index, last) + 1) if model.terms[i] <= term]
    assert log.last_index_with_term_up_to(index, term) == max(fitting, default=model.floor)


def test_entries_replaced_during_write_are_not_durable() -> None:
    disk = SimulatedDisk()
    log = RaftLog(disk, disk.recovered())
    log.append(make_entries(1, [1, 1, 1]))
    writing = Persist(sequence=1, entries=log.take_unpersisted_entries())
    log.append(make_entries(2, [2]))
    disk.write(writing)
    log.mark_persisted()
    assert (log.durable_index, log.last_index) == (1, 2)
    assert [entry.term for entry in log.take_unpersisted_entries()] == [2]


def test_unstable_bytes_are_counted_until_persisted() -> None:
    disk = SimulatedDisk()
    log = RaftLog(disk, disk.recovered())
    entries = make_entries(1, [1] * 10)
    log.append(entries)
    assert log.unstable_bytes == sum(entry.size_bytes for entry in entries)
    log.append(make_entries(4, [2]))
    disk.write(Persist(sequence=1, entries=log.take_unpersisted_entries()))
    log.mark_persisted()
    assert log.unstable_bytes == 0


def test_installed_snapshot_replaces_log() -> None:
    disk = SimulatedDisk()
    log = RaftLog(disk, disk.recovered())
    log.append(make_entries(1, [1, 1, 2]))
    log.install_snapshot(SnapshotMetadata(10, 4))
    assert (log.first_index, log.last_index, log.last_term) == (11, 10, 4)
    assert (log.term_at(10), log.term_at(3)) == (4, None)


def test_gaps_and_decreasing_terms_are_rejected() -> None:
    disk = SimulatedDisk()
    log = RaftLog(disk, disk.recovered())
    with pytest.raises(InvariantError, match="gap"):
        log.append(make_entries(2, [1]))
    log.append(make_entries(1, [3]))
    with pytest.raises(InvariantError, match="is lower than"):
        log.append(make_entries(2, [2]))
