from __future__ import annotations

import pytest
from crc32c import crc32c

from chronik.errors import DamagedDataError
from chronik.quorum import stored_entries
from chronik.quorum.storage import RaftStorage
from chronik.raft.entries import ENTRY_OVERHEAD_BYTES, EntryKind, HardState, RaftEntry, SnapshotMetadata
from chronik.raft.events import Persist, SnapshotChunkRequest, StoreChunk
from chronik.wal.records import encode_record
from tests.files.simulated_files import SimulatedFileSystem
from tests.quorum.storage_script import FOLDER, MEMBERSHIP, Script, recover_model


def entries(first: int, last: int, term: int, size: int = 10) -> tuple[RaftEntry, ...]:
    return tuple(RaftEntry(index, term, EntryKind.COMMAND, b"x" * size) for index in range(first, last + 1))


def persist(storage: RaftStorage, item: Persist) -> None:
    write = storage.prepare_write(item)
    storage.write(write)
    storage.complete_write(write)


def take_snapshot(storage: RaftStorage, index: int, term: int) -> SnapshotMetadata:
    writer = storage.create_snapshot_writer(index)
    writer.write(b"state at %d" % index)
    metadata = SnapshotMetadata(index, term, MEMBERSHIP, *writer.finish())
    assert storage.adopt_snapshot(metadata)
    return metadata


def test_replaced_entries_stay_deleted_after_compaction() -> None:
    files = SimulatedFileSystem()
    storage = RaftStorage.open(files, FOLDER)
    persist(storage, Persist(1, entries=entries(1, 7, term=1)))
    persist(storage, Persist(2, entries=entries(4, 5, term=2)))
    take_snapshot(storage, 5, 2)
    persist(storage, Persist(3, compact_through=5))
    model, _ = recover_model(files.kill())
    assert (model.floor, model.log) == ((5, 2), [])


def test_uncached_entries_are_read_from_files() -> None:
    files = SimulatedFileSystem()
    storage = RaftStorage.open(files, FOLDER, cache_bytes=1000)
    written = entries(1, 200, term=1, size=50)
    for number in range(20):
        persist(storage, Persist(number, entries=written[number * 10 : number * 10 + 10], hard_state=HardState(1, 1)))
    read: list[RaftEntry] = []
    while len(read) < 200:
        read += storage.entries(len(read) + 1, 201, 700)
    assert read == list(written)


def test_entry_cache_size_is_limited() -> None:
    storage = RaftStorage.open(SimulatedFileSystem(), FOLDER, cache_bytes=10_000)
    for number in range(100):
        persist(storage, Persist(number, entries=entries(number * 10 + 1, number * 10 + 10, term=1, size=100)))
        held = storage._entries._cache
        assert sum(entry.size_bytes for entry in held) <= 10_000 * 9 / 8 + 1320
    assert storage.entries(1000, 1001, 1)[0].index == 1000


def test_full_entry_cache_is_not_scanned_at_every_write(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = RaftStorage.open(SimulatedFileSystem(), FOLDER, cache_bytes=100_000)
    persist(storage, Persist(0, entries=entries(1, 1000, term=1, size=100)))
    asked: list[RaftEntry] = []

    def size_bytes(entry: RaftEntry) -> int:
        asked.append(entry)
        return len(entry.data) + ENTRY_OVERHEAD_BYTES

    monkeypatch.setattr("chronik.raft.entries.RaftEntry.size_bytes", property(size_bytes))
    for index in range(1001, 2001):
        persist(storage, Persist(index, entries=entries(index, index, term=1, size=100)))
    assert len(asked) < 10 * 1000


def test_file_read_size_is_limited() -> None:
    storage = RaftStorage.open(SimulatedFileSystem(), FOLDER, cache_bytes=0)
    persist(storage, Persist(1, entries=entries(1, 1000, term=1, size=1000)))
    persist(storage, Persist(2, entries=entries(1001, 1001, term=1)))
    read = storage.entries(1, 1002, 1 << 30)
    assert 200 < len(read) <= stored_entries.READ_BYTES_MAX // 1000


@pytest.mark.slow
def test_every_bit_flip_is_detected() -> None:
    """Reliability row 11. Every byte of the log counts; the synced position only says how far it was synced."""
    files = SimulatedFileSystem()
    script = Script(files, 5)
    script.run(30)
    recover_model(files)  # a restart deletes obsolete files, whose bits do not matter
    assert script.promised.log
    assert script.promised.snapshot.index
    flipped = 0
    for path in files.paths():
        content = files.read(path)
        for position in range(len(content)):
            disk = files.kill()
            disk.overwrite(path, content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :])
            if path.endswith("/synced"):
                assert recover_model(disk)[0] == script.promised
                continue
            flipped += 1
            with pytest.raises(DamagedDataError):
                recover_model(disk)
    assert flipped > 500


@pytest.mark.parametrize("name", ["manifest", ".wal", ".snapshot"])
def test_missing_file_is_detected(name: str) -> None:
    files = SimulatedFileSystem()
    storage = RaftStorage.open(files, FOLDER)
    persist(storage, Persist(1, entries=entries(1, 7, term=1), hard_state=HardState(1, 1, 5)))
    take_snapshot(storage, 5, 1)
    storage.close()
    [path] = [path for path in files.paths() if path.endswith(name)]
    files.remove(path)
    with pytest.raises(DamagedDataError):
        recover_model(files)


def test_previous_snapshot_is_kept_for_transfers() -> None:
    storage = RaftStorage.open(SimulatedFileSystem(), FOLDER)
    persist(storage, Persist(1, entries=entries(1, 9, term=1)))
    first = take_snapshot(storage, 3, 1)
    wanted = SnapshotChunkRequest(2, 3, 0, 1000)
    whole = storage.read_chunk(wanted, first)
    assert whole is not None
    take_snapshot(storage, 5, 1)
    persist(storage, Persist(2, compact_through=5))
    assert storage.read_chunk(wanted, None) == whole
    take_snapshot(storage, 7, 1)
    assert storage.read_chunk(wanted, None) is None


def test_damaged_snapshot_is_not_sent() -> None:
    files = SimulatedFileSystem()
    storage = RaftStorage.open(files, FOLDER)
    persist(storage, Persist(1, entries=entries(1, 9, term=1)))
    metadata = take_snapshot(storage, 3, 1)
    [path] = [path for path in files.paths() if path.endswith(".snapshot")]
    content = files.read(path)
    files.overwrite(path, content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DamagedDataError):
        storage.read_chunk(SnapshotChunkRequest(2, 3, 0, 1000), metadata)


def test_received_snapshot_supersedes_local_one() -> None:
    files = SimulatedFileSystem()
    storage = RaftStorage.open(files, FOLDER)
    persist(storage, Persist(1, entries=entries(1, 9, term=1)))
    writer = storage.create_snapshot_writer(8)
    writer.write(b"state at 8")
    own = SnapshotMetadata(8, 1, MEMBERSHIP, *writer.finish())
    data = encode_record(1, 0, b"state at 20") + encode_record(2, 0, b"")
    received = SnapshotMetadata(20, 2, MEMBERSHIP, len(data), crc32c(data))
    persist(storage, Persist(2, chunks=(StoreChunk(received, 0, data),), install=received))
    assert not storage.adopt_snapshot(own)
    model, _ = recover_model(files.kill())
    assert model.snapshot == received
    assert model.log == []


def test_received_snapshot_with_wrong_checksum_is_not_installed() -> None:
    files = SimulatedFileSystem()
    storage = RaftStorage.open(files, FOLDER)
    announced = SnapshotMetadata(20, 2, MEMBERSHIP, 5, crc32c(b"right"))
    with pytest.raises(DamagedDataError):
        persist(storage, Persist(1, chunks=(StoreChunk(announced, 0, b"wrong"),), install=announced))
    assert recover_model(files.kill())[0].snapshot == SnapshotMetadata()
