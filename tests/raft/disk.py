"""An in-memory disk and a small state machine for Raft tests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import msgspec
from crc32c import crc32c

from chronik.raft.entries import EntryKind, HardState, RaftEntry, RecoveredRaftState, SnapshotMetadata
from chronik.raft.events import Persist, StoreChunk
from chronik.raft.membership import Membership


class SimulatedDisk:
    """A simulated disk. A torn write applies only the first steps of a `Persist`, as a power failure does."""

    def __init__(self) -> None:
        self.hard_state = HardState()
        self.compacted = (0, 0)
        self.log: list[RaftEntry] = []
        self.snapshot = SnapshotMetadata()
        self.snapshot_data = b""
        self._incoming: tuple[SnapshotMetadata, bytearray] | None = None

    @property
    def last_index(self) -> int:
        return self.compacted[0] + len(self.log)

    def entries(self, first: int, end: int, bytes_max: int) -> Sequence[RaftEntry]:
        begin = first - self.compacted[0] - 1
        assert begin >= 0, f"entry {first} was compacted"
        size = 0
        for position in range(begin, end - self.compacted[0] - 1):
            size += self.log[position].size_bytes
            if size > bytes_max and position > begin:
                return self.log[begin:position]
        return self.log[begin : end - self.compacted[0] - 1]

    def term(self, index: int) -> int | None:
        if index == self.compacted[0]:
            return self.compacted[1]
        if not self.compacted[0] < index <= self.last_index:
            return None
        return self.log[index - self.compacted[0] - 1].term

    def holds(self, index: int, term: int) -> bool:
        """Return whether the entry is durable, in the log or in the snapshot."""
        return index <= self.snapshot.index or self.term(index) == term

    def write(self, persist: Persist, steps_max: int | None = None) -> None:
        for step in self._steps(persist)[:steps_max]:
            step()

    def steps(self, persist: Persist) -> int:
        return len(self._steps(persist))

    def _steps(self, persist: Persist) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = [lambda chunk=chunk: self._store(chunk) for chunk in persist.chunks]  # type: ignore[misc]
        if persist.install is not None:
            snapshot = persist.install
            steps.append(lambda: self._install(snapshot))
        steps += [lambda entry=entry: self._append(entry) for entry in persist.entries]  # type: ignore[misc]
        if persist.hard_state is not None:
            hard_state = persist.hard_state
            steps.append(lambda: setattr(self, "hard_state", hard_state))
        if persist.compact_through:
            steps.append(lambda: self.compact(persist.compact_through))
        return steps

    def _store(self, chunk: StoreChunk) -> None:
        if chunk.offset == 0:
            self._incoming = (chunk.snapshot, bytearray())
        assert self._incoming is not None
        assert self._incoming[0] == chunk.snapshot
        assert len(self._incoming[1]) == chunk.offset, "a chunk of the snapshot is missing"
        self._incoming[1].extend(chunk.data)

    def _install(self, snapshot: SnapshotMetadata) -> None:
        assert self._incoming is not None
        data = bytes(self._incoming[1])
        assert self._incoming[0] == snapshot
        assert (len(data), crc32c(data)) == (snapshot.size_bytes, snapshot.checksum), "the snapshot is damaged"
        self.save_snapshot(snapshot, data)
        self.compacted, self.log, self._incoming = (snapshot.index, snapshot.term), [], None

    def save_snapshot(self, snapshot: SnapshotMetadata, data: bytes) -> None:
        self.snapshot, self.snapshot_data = snapshot, data

    def _append(self, entry: RaftEntry) -> None:
        position = entry.index - self.compacted[0] - 1
        assert 0 <= position <= len(self.log), f"entry {entry.index} leaves a gap"
        del self.log[position:]
        self.log.append(entry)

    def compact(self, index: int) -> None:
        term = self.term(index)
        if index > self.compacted[0]:
            assert term is not None
            del self.log[: index - self.compacted[0]]
            self.compacted = (index, term)

    def recovered(self) -> RecoveredRaftState:
        self._incoming = None
        return RecoveredRaftState(self.hard_state, self.snapshot, *self.compacted, self.last_index)


class HashChainStateMachine:
    """A state machine whose state is a hash chain: equal states at an index imply equal histories."""

    def __init__(self) -> None:
        self.applied = 0
        self.digest = b""
        self.commands: list[bytes] = []

    def apply(self, entry: RaftEntry) -> None:
        assert entry.index == self.applied + 1, f"{entry.index} is applied after {self.applied}"
        self.applied = entry.index
        self.digest = hashlib.blake2b(self.digest + entry.data, digest_size=8).digest()
        if entry.kind is EntryKind.COMMAND:
            self.commands.append(entry.data)

    def save(self, membership: Membership, term: int) -> tuple[SnapshotMetadata, bytes]:
        data = msgspec.msgpack.encode((self.applied, self.digest, self.commands))
        return SnapshotMetadata(self.applied, term, membership, len(data), crc32c(data)), data

    def load(self, data: bytes) -> None:
        self.applied, self.digest, self.commands = msgspec.msgpack.decode(data, type=tuple[int, bytes, list[bytes]])
