from __future__ import annotations

import pytest

from chronik.errors import DamagedDataError, InvariantError
from chronik.files import DiskFileSystem
from chronik.wal.snapshots import (
    WalSnapshotWriter,
    build_snapshot_path,
    find_newest_snapshot,
    read_snapshot,
    remove_older_snapshots,
)
from tests.files.simulated_files import SimulatedFileSystem

FOLDER = "log"


def with_snapshot(index: int, *chunks: bytes) -> SimulatedFileSystem:
    files = SimulatedFileSystem()
    files.make_directory(FOLDER)
    write(files, index, *chunks)
    return files


def write(files: SimulatedFileSystem, index: int, *chunks: bytes) -> int:
    writer = WalSnapshotWriter(files, FOLDER, index)
    for chunk in chunks:
        writer.write(chunk)
    return writer.commit()


def test_chunks_are_read_in_order() -> None:
    files = with_snapshot(7, b"one", b"two" * 1000, b"three")
    assert find_newest_snapshot(files, FOLDER) == 7
    assert list(read_snapshot(files, FOLDER, 7)) == [b"one", b"two" * 1000, b"three"]
    assert files.paths() == [build_snapshot_path(FOLDER, 7)]


def test_commit_deletes_older_snapshots() -> None:
    files = with_snapshot(7, b"old")
    write(files, 12, b"new")
    assert files.paths() == [build_snapshot_path(FOLDER, 12)]


def test_oversized_chunk_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.wal.snapshots.RECORD_BYTES_MAX", 10)
    files = with_snapshot(7, bytes(10))
    with pytest.raises(InvariantError):
        write(files, 12, bytes(11))
    assert find_newest_snapshot(files, FOLDER) == 7


def test_bit_flip_is_damage() -> None:
    files = with_snapshot(7, b"one", b"two")
    path = build_snapshot_path(FOLDER, 7)
    content = files.read(path)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1
        files.overwrite(path, bytes(damaged))
        with pytest.raises(DamagedDataError, match=path):
            list(read_snapshot(files, FOLDER, 7))


def test_truncated_or_extended_snapshot_is_damage() -> None:
    files = with_snapshot(7, b"one", b"two")
    path = build_snapshot_path(FOLDER, 7)
    content = files.read(path)
    for wrong in (*(content[:size] for size in range(len(content))), content + b"x"):
        files.overwrite(path, wrong)
        with pytest.raises(DamagedDataError, match=path):
            list(read_snapshot(files, FOLDER, 7))


def test_incomplete_snapshot_is_ignored() -> None:
    files = with_snapshot(7, b"old")
    writer = WalSnapshotWriter(files, FOLDER, 9)
    writer.write(b"half")
    killed = files.kill()
    assert find_newest_snapshot(killed, FOLDER) == 7
    remove_older_snapshots(killed, FOLDER)
    writer.abandon()
    assert files.paths() == killed.paths() == [build_snapshot_path(FOLDER, 7)]


def test_large_snapshot_is_synced_incrementally(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.wal.snapshots.SYNC_INTERVAL_BYTES", 10)
    files = SimulatedFileSystem()
    files.make_directory(FOLDER)
    syncs: list[str] = []
    files.before_event = lambda action, path: syncs.append(path) if action == "sync" else None
    write(files, 1, *[b"12345"] * 6)
    assert len(syncs) == 4


def test_snapshot_round_trips_on_real_file_system(tmp_path: object) -> None:
    files = DiskFileSystem(str(tmp_path))
    files.make_directory(FOLDER)
    writer = WalSnapshotWriter(files, FOLDER, 3)
    writer.write(b"chunk")
    writer.commit()
    assert list(read_snapshot(files, FOLDER, 3)) == [b"chunk"]
