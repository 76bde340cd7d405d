"""The contract of FileSystem, tested with the disk, the simulated disk and the overlay."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from chronik.errors import DataDirectoryInUse, StorageError
from chronik.files import DiskFileSystem, FileSystem, platform, read_file, remove_tree, write_atomically
from chronik.files.interface import parent_directories
from chronik.files.overlay import OverlayFileSystem
from tests.files.simulated_files import SimulatedFileSystem

Make = Callable[[Path], FileSystem]


@pytest.fixture(params=["real", "twin", "overlay"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    if request.param == "overlay":
        return OverlayFileSystem(tmp_path)
    return DiskFileSystem(tmp_path / "data") if request.param == "real" else SimulatedFileSystem()


@pytest.fixture(params=["real", "twin"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    return DiskFileSystem(tmp_path / "data") if request.param == "real" else SimulatedFileSystem()


def test_written_bytes_are_read(files: FileSystem) -> None:
    file = files.create("a")
    assert file.append(b"hello ") == 0
    assert file.append(memoryview(b"world")) == 6
    file.pwrite(bytearray(b"J"), 0)
    assert file.pread(100, 0) == b"Jello world"
    assert file.pread(5, 6) == b"world"
    assert file.pread(5, 100) == b""
    assert (file.size, files.size("a")) == (11, 11)
    file.truncate(5)
    assert file.append(b"!") == 5
    file.close()
    assert read_file(files, "a") == b"Jello!"
    assert files.modified_ms("a") >= 0


def test_file_tracks_unsynced_writes(files: FileSystem) -> None:
    file = files.create("a")
    assert not file.has_unsynced_writes
    for change in (lambda: file.append(b"x"), lambda: file.pwrite(b"y", 0), lambda: file.truncate(0)):
        change()
        assert file.has_unsynced_writes
        file.fdatasync()
        assert not file.has_unsynced_writes
    file.close()


def test_preallocated_space_is_zeros_and_writable(files: FileSystem) -> None:
    file = files.create("a")
    file.append(b"ab")
    file.fdatasync()
    file.preallocate(8192)
    assert file.has_unsynced_writes
    assert (file.size, files.size("a")) == (8192, 8192)
    file.pwrite(b"c", 2)
    assert file.pread(10_000, 0) == b"abc" + bytes(8189)
    file.preallocate(100)
    assert files.size("a") == 8192
    file.truncate(3)
    file.close()
    assert read_file(files, "a") == b"abc"


def test_write_beyond_end_fills_gap_with_zeros(files: FileSystem) -> None:
    file = files.create("a")
    file.pwrite(b"x", 3)
    assert file.pread(10, 0) == b"\x00\x00\x00x"
    file.close()


def test_missing_file_raises_file_not_found(files: FileSystem) -> None:
    for look in (files.open, files.size, files.modified_ms):
        with pytest.raises(FileNotFoundError):
            look("missing")
    assert not files.exists("missing")
    assert read_file(files, "missing") is None
    files.remove("missing")
    files.remove_directory("missing")
    assert files.list_directory("missing") == []


def test_directories_are_created_listed_and_removed(files: FileSystem) -> None:
    assert files.make_directory("a/b/c") == ["a/b", "a", ""]
    assert files.make_directory("a/b/c") == parent_directories("a/b/c")
    files.create("a/b/2").close()
    files.create("a/b/1").close()
    assert files.list_directory("a/b") == ["1", "2", "c"]
    assert files.list_directory("a") == ["b"]
    assert not files.exists("a/b")
    for directory in ("a/b", "a", ""):
        files.sync_directory(directory)
    remove_tree(files, "a/b")
    assert files.list_directory("a") == []
    files.remove_directory("a")
    assert files.list_directory("") == []


def test_rename_replaces_existing_file(files: FileSystem) -> None:
    for name in ("a", "b"):
        file = files.create(name)
        file.append(name.encode())
        file.close()
    files.rename("a", "b")
    assert files.list_directory("") == ["b"]
    assert read_file(files, "b") == b"a"


def test_write_atomically_replaces_whole_file(files: FileSystem) -> None:
    write_atomically(files, "a", b"long content")
    write_atomically(files, "a", b"short")
    assert read_file(files, "a") == b"short"
    assert files.list_directory("") == ["a"]


def test_create_opens_existing_file(files: FileSystem) -> None:
    file = files.create("a")
    file.append(b"x")
    file.close()
    again = files.create("a")
    assert again.append(b"y") == 1
    again.close()


def test_lock_is_exclusive(disk: FileSystem) -> None:
    lock = disk.lock("lock")
    with pytest.raises(DataDirectoryInUse):
        disk.lock("lock")
    lock.close()
    disk.lock("lock").close()


def test_writes_fail_after_storage_failure_but_reads_succeed(disk: FileSystem) -> None:
    file = disk.create("a")
    file.append(b"x")
    with pytest.raises(StorageError):
        disk.rename("missing", "b")
    assert disk.failure is not None
    changes: list[Callable[[], object]] = [
        lambda: file.append(b"y"), lambda: file.pwrite(b"y", 0), lambda: file.truncate(0), file.fdatasync,
        lambda: file.preallocate(100),
        lambda: disk.create("c"), lambda: disk.remove("a"), lambda: disk.rename("a", "b"),
        lambda: disk.make_directory("d"), lambda: disk.sync_directory(""),
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(StorageError):
            change()
    assert file.pread(1, 0) == b"x"
    file.close()


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EOPNOTSUPP])
def test_failed_preallocation_is_not_a_storage_failure(
    error_number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, size: int) -> None:
        raise OSError(error_number, "refused")

    monkeypatch.setattr(platform, "preallocate", refuse)
    files = DiskFileSystem(tmp_path)
    file = files.create("a")
    file.append(b"x")
    file.preallocate(8192)
    assert files.failure is None
    assert file.append(b"y") == 1
    file.fdatasync()
    file.close()
    assert read_file(files, "a") == b"xy"


def test_failed_write_raises_storage_failed(tmp_path: Path) -> None:
    files = DiskFileSystem(tmp_path)
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    (tmp_path / "full").symlink_to(full)
    file = files.open("full")
    with pytest.raises(StorageError, match="No space"):
        file.append(b"x")
    assert files.failure is not None
    file.close()
