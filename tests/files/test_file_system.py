"""The contract of FileSystem, tested with the disk, the simulated disk and the overlay."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from chronik.errors import DataFolderInUse, StorageFailed
from chronik.files import FileSystem, RealFiles, platform, read_file, remove_tree, write_atomically
from chronik.files.interface import folders_above
from chronik.files.overlay import OverlayFiles
from tests.files.twin import TwinFiles

Make = Callable[[Path], FileSystem]


@pytest.fixture(params=["real", "twin", "overlay"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    if request.param == "overlay":
        return OverlayFiles(tmp_path)
    return RealFiles(tmp_path / "data") if request.param == "real" else TwinFiles()


@pytest.fixture(params=["real", "twin"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    return RealFiles(tmp_path / "data") if request.param == "real" else TwinFiles()


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
    assert not file.unsynced
    for change in (lambda: file.append(b"x"), lambda: file.pwrite(b"y", 0), lambda: file.truncate(0)):
        change()
        assert file.unsynced
        file.fdatasync()
        assert not file.unsynced
    file.close()


def test_preallocated_space_is_zeros_and_writable(files: FileSystem) -> None:
    file = files.create("a")
    file.append(b"ab")
    file.fdatasync()
    file.reserve(8192)
    assert file.unsynced
    assert (file.size, files.size("a")) == (8192, 8192)
    file.pwrite(b"c", 2)
    assert file.pread(10_000, 0) == b"abc" + bytes(8189)
    file.reserve(100)
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
    files.remove_folder("missing")
    assert files.list_folder("missing") == []


def test_directories_are_created_listed_and_removed(files: FileSystem) -> None:
    assert files.make_folder("a/b/c") == ["a/b", "a", ""]
    assert files.make_folder("a/b/c") == folders_above("a/b/c")
    files.create("a/b/2").close()
    files.create("a/b/1").close()
    assert files.list_folder("a/b") == ["1", "2", "c"]
    assert files.list_folder("a") == ["b"]
    assert not files.exists("a/b")
    for directory in ("a/b", "a", ""):
        files.sync_folder(directory)
    remove_tree(files, "a/b")
    assert files.list_folder("a") == []
    files.remove_folder("a")
    assert files.list_folder("") == []


def test_rename_replaces_existing_file(files: FileSystem) -> None:
    for name in ("a", "b"):
        file = files.create(name)
        file.append(name.encode())
        file.close()
    files.rename("a", "b")
    assert files.list_folder("") == ["b"]
    assert read_file(files, "b") == b"a"


def test_write_atomically_replaces_whole_file(files: FileSystem) -> None:
    write_atomically(files, "a", b"long content")
    write_atomically(files, "a", b"short")
    assert read_file(files, "a") == b"short"
    assert files.list_folder("") == ["a"]


def test_create_opens_existing_file(files: FileSystem) -> None:
    file = files.create("a")
    file.append(b"x")
    file.close()
    again = files.create("a")
    assert again.append(b"y") == 1
    again.close()


def test_lock_is_exclusive(disk: FileSystem) -> None:
    lock = disk.lock("lock")
    with pytest.raises(DataFolderInUse):
        disk.lock("lock")
    lock.close()
    disk.lock("lock").close()


def test_writes_fail_after_storage_failure_but_reads_succeed(disk: FileSystem) -> None:
    file = disk.create("a")
    file.append(b"x")
    with pytest.raises(StorageFailed):
        disk.rename("missing", "b")
    assert disk.failure is not None
    changes: list[Callable[[], object]] = [
        lambda: file.append(b"y"), lambda: file.pwrite(b"y", 0), lambda: file.truncate(0), file.fdatasync,
        lambda: file.reserve(100),
        lambda: disk.create("c"), lambda: disk.remove("a"), lambda: disk.rename("a", "b"),
        lambda: disk.make_folder("d"), lambda: disk.sync_folder(""),
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(StorageFailed):
            change()
    assert file.pread(1, 0) == b"x"
    file.close()


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EOPNOTSUPP])
def test_failed_preallocation_is_not_a_storage_failure(
    error_number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, size: int) -> None:
        raise OSError(error_number, "refused")

    monkeypatch.setattr(platform, "reserve", refuse)
    files = RealFiles(tmp_path)
    file = files.create("a")
    file.append(b"x")
    file.reserve(8192)
    assert files.failure is None
    assert file.append(b"y") == 1
    file.fdatasync()
    file.close()
    assert read_file(files, "a") == b"xy"


def test_failed_write_raises_storage_failed(tmp_path: Path) -> None:
    files = RealFiles(tmp_path)
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    (tmp_path / "full").symlink_to(full)
    file = files.open("full")
    with pytest.raises(StorageFailed, match="No space"):
        file.append(b"x")
    assert files.failure is not None
    file.close()
