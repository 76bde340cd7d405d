"""Random writes to a Raft directory, a model of their guarantees, and power failures."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from crc32c import crc32c

from chronik.quorum.storage import RaftStorage
from chronik.raft.entries import EntryKind, HardState, RaftEntry, SnapshotMetadata
from chronik.raft.events import Persist, StoreChunk
from chronik.raft.membership import Membership, RaftMember
from chronik.wal.records import encode_record
from tests.files.simulated_files import SimulatedFileSystem

FOLDER = "raft"
MEMBERSHIP = Membership((RaftMember(1, b"1" * 16, True), RaftMember(2, b"2" * 16, True)))


class PowerFailure(Exception):
    """A simulated power failure."""


@dataclass
class DurableModel:
    """The durable state as `Persist` specifies it."""

    hard_state: HardState = field(default_factory=HardState)
    snapshot: SnapshotMetadata = field(default_factory=SnapshotMetadata)
    floor: tuple[int, int] = (0, 0)
    log: list[RaftEntry] = field(default_factory=list)

    @property
    def last_index(self) -> int:
        return self.floor[0] + len(self.log)

    def term(self, index: int) -> int:
        return self.floor[1] if index == self.floor[0] else self.log[index - self.floor[0] - 1].term

    def steps(self, persist: Persist) -> list[Callable[[DurableModel], None]]:
        """Return the steps of a write; a crash leaves any prefix of them."""
        steps: list[Callable[[DurableModel], None]] = []
        if persist.install is not None:
            steps.append(_with_snapshot(persist.install))
        steps += [_with_entry(entry) for entry in persist.entries]
        if persist.hard_state is not None:
            steps.append(_with_hard_state(persist.hard_state))
        if persist.compact_through:
            steps.append(_with_compaction(persist.compact_through))
        return steps


def _with_snapshot(snapshot: SnapshotMetadata) -> Callable[[DurableModel], None]:
    def step(model: DurableModel) -> None:
        model.snapshot, model.floor, model.log = snapshot, (snapshot.index, snapshot.term), []

    return step


def _with_entry(entry: RaftEntry) -> Callable[[DurableModel], None]:
    def step(model: DurableModel) -> None:
        model.log = [*model.log[: entry.index - model.floor[0] - 1], entry]

    return step


def _with_hard_state(hard_state: HardState) -> Callable[[DurableModel], None]:
    def step(model: DurableModel) -> None:
        model.hard_state = hard_state

    return step


def _with_compaction(through: int) -> Callable[[DurableModel], None]:
    def step(model: DurableModel) -> None:
        if through > model.floor[0]:
            term = model.term(through)
            model.log = model.log[through - model.floor[0] :]
            model.floor = (through, term)

    return step


def recover_model(files: SimulatedFileSystem) -> tuple[DurableModel, RaftStorage]:
    """Open the storage as a restart does, and return its contents as a model."""
    storage = RaftStorage.open(files, FOLDER, cache_bytes=1000)
    recovered = storage.recovered
    log: list[RaftEntry] = []
    while recovered.compacted_index + len(log) < recovered.last_index:
        log += storage.entries(recovered.compacted_index + len(log) + 1, recovered.last_index + 1, 1 << 20)
    if recovered.snapshot.index:
        assert list(storage.read_snapshot(recovered.snapshot.index)) == [b"state at %d" % recovered.snapshot.index]
    floor = (recovered.compacted_index, recovered.compacted_term)
    return DurableModel(recovered.hard_state, recovered.snapshot, floor, log), storage


class Script:
    """A random sequence of writes."""

    def __init__(self, files: SimulatedFileSystem, seed: int) -> None:
        self.files = files
        self.promised = DurableModel()
        self.possible: list[DurableModel] = [self.promised]
        """States that a crash may leave now: the durable state, and each step of the outstanding write."""
        self.reads = 0
        self._chance = random.Random(seed)
        self._sequence = 0
        self._term = 1

    def run(self, steps: int) -> None:
        storage = RaftStorage.open(self.files, FOLDER, cache_bytes=2000)
        for _ in range(steps):
            self._random_step(storage)
            self._compare(storage)
        storage.close()

    def _random_step(self, storage: RaftStorage) -> None:
        action = self._chance.random()
        model = self.promised
        if action < 0.4:
            self._persist(storage, entries=self._entries(model.last_index + 1), hard_state=self._hard_state())
        elif action < 0.65 and model.last_index > self._committed:
            self._term += 1
            first = self._chance.randint(self._committed + 1, model.last_index)
            self._persist(storage, entries=self._entries(first), hard_state=self._hard_state())
        elif action < 0.75:
            self._term += 1
            self._persist(storage, hard_state=HardState(self._term, self._chance.randint(1, 3), self._committed))
        elif action < 0.83:
            self._receive_snapshot(storage)
        elif model.last_index > model.snapshot.index:
            self._take_snapshot(storage)

    @property
    def _committed(self) -> int:
        return max(self.promised.hard_state.commit, self.promised.snapshot.index)

    def _entries(self, first: int) -> tuple[RaftEntry, ...]:
        count = self._chance.randint(1, 5)
        data = b"%d." % self._chance.randrange(10**6) * self._chance.randint(0, 60)
        return tuple(RaftEntry(index, self._term, EntryKind.COMMAND, data) for index in range(first, first + count))

    def _hard_state(self) -> HardState | None:
        if self._chance.random() < 0.5:
            return None
        commit = self._chance.randint(self._committed, max(self._committed, self.promised.last_index))
        return HardState(self._term, 1, min(commit, self._committed + self._chance.randint(0, 2)))

    def _persist(
        self,
        storage: RaftStorage,
        *,
        chunks: tuple[StoreChunk, ...] = (),
        install: SnapshotMetadata | None = None,
        entries: tuple[RaftEntry, ...] = (),
        hard_state: HardState | None = None,
        compact_through: int = 0,
    ) -> None:
        if hard_state is not None and entries:
            # Entries that this write may truncate are not committed.
            commit = min(hard_state.commit, max(entries[0].index - 1, self._committed))
            hard_state = HardState(hard_state.term, hard_state.vote, commit)
        self._sequence += 1
        persist = Persist(self._sequence, chunks, install, entries, hard_state, compact_through)
        model = self.promised
        for step in model.steps(persist):
            model = copy.copy(model)
            step(model)
            self.possible.append(model)
        write = storage.prepare_write(persist)
        storage.write(write)
        storage.complete_write(write)
        self.promised, self.possible = model, [model]

    def _receive_snapshot(self, storage: RaftStorage) -> None:
        index = max(self.promised.last_index, self._committed) + self._chance.randint(1, 9)
        self._term += 1
        metadata, data = self._snapshot(index, self._term)
        size = max(1, len(data) // 3)
        pieces = [(offset, data[offset : offset + size]) for offset in range(0, len(data), size)]
        for offset, piece in pieces[:-1]:
            self._persist(storage, chunks=(StoreChunk(metadata, offset, piece),))
            if self._chance.random() < 0.1:
                return  # the sender stopped; the next transfer starts from the beginning
        last = StoreChunk(metadata, *pieces[-1])
        entries = self._entries(index + 1) if self._chance.random() < 0.5 else ()
        hard_state = HardState(self._term, 2, index) if self._chance.random() < 0.5 else None
        self._persist(storage, chunks=(last,), install=metadata, entries=entries, hard_state=hard_state)

    def _take_snapshot(self, storage: RaftStorage) -> None:
        model = self.promised
        some_index = self._chance.randint(model.snapshot.index + 1, model.last_index)
        index = self._chance.choice([some_index, model.last_index])
        metadata, data = self._snapshot(index, model.term(index))
        writer = storage.create_snapshot_writer(index)
        writer.write(b"state at %d" % index)
        if self._chance.random() < 0.1:
            writer.abandon()
            return
        assert writer.finish() == (len(data), metadata.checksum)
        adopted = copy.copy(model)
        adopted.snapshot = metadata
        self.possible.append(adopted)
        assert storage.adopt_snapshot(metadata)
        self.promised, self.possible = adopted, [adopted]
        through = storage.find_compaction_index(index, self._chance.choice([0, 0, 300, 3000]))
        if through > model.floor[0]:
            hard_state = HardState(self._term, 1, max(self._committed, index)) if self._chance.random() < 0.3 else None
            with_entries = self._chance.random() < 0.5
            entries = self._entries(self.promised.last_index + 1) if with_entries else ()
            self._persist(storage, entries=entries, hard_state=hard_state, compact_through=through)

    @staticmethod
    def _snapshot(index: int, term: int) -> tuple[SnapshotMetadata, bytes]:
        data = encode_record(1, 0, b"state at %d" % index) + encode_record(2, 0, b"")
        return SnapshotMetadata(index, term, MEMBERSHIP, len(data), crc32c(data)), data

    def _compare(self, storage: RaftStorage) -> None:
        """Check that storage returns the written entries, from memory and from files."""
        model = self.promised
        if not model.log:
            return
        first = self._chance.randint(model.floor[0] + 1, model.last_index)
        entries = storage.entries(first, model.last_index + 1, 2000)
        begin = first - model.floor[0] - 1
        assert list(entries) == model.log[begin : begin + len(entries)]
        assert entries
        self.reads += 1
