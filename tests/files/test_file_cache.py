"""The cache of open files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chronik.files import DiskFileSystem, FileCache
from chronik.files.cache import EVICTION_ATTEMPTS_MAX
from tests.files.simulated_files import SimulatedFileSystem


def test_number_of_open_files_does_not_exceed_limit(tmp_path: Path) -> None:
    cache = FileCache(DiskFileSystem(tmp_path), open_files_max=10)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for number in range(100):
        cache.create(str(number)).append(b"%d" % number)
        cache.get(str(number)).fdatasync()
        assert len(cache) <= 10
    if before:
        assert len(os.listdir("/proc/self/fd")) - before == 10
    for number in range(100):
        assert cache.get(str(number)).pread(9, 0) == b"%d" % number
        assert len(cache) <= 10
    cache.close()
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


def test_least_recently_used_file_is_evicted_first() -> None:
    cache = FileCache(SimulatedFileSystem(), open_files_max=2)
    a, b = cache.create("a"), cache.create("b")
    assert cache.get("a") is a
    cache.create("c")
    assert cache.get("a") is a
    assert cache.get("b") is not b


def test_unsynced_files_are_never_evicted() -> None:
    cache = FileCache(SimulatedFileSystem(), open_files_max=4)
    dirty = []
    for number in range(30):
        dirty.append(cache.create(str(number)))
        dirty[-1].append(b"x")
    for number in range(30, 60):
        cache.create(str(number)).append(b"x")
    assert all(cache.get(file.path) is file for file in dirty)
    for number in range(60):
        cache.get(str(number)).fdatasync()
    for number in range(60, 60 + 60 // EVICTION_ATTEMPTS_MAX + 10):
        cache.create(str(number))
    assert len(cache) <= 4


def test_unsynced_expendable_files_are_evicted() -> None:
    cache = FileCache(SimulatedFileSystem(), open_files_max=4)
    for number in range(30):
        cache.create(str(number), is_expendable=True).append(b"x")
    assert len(cache) <= 4


def test_pinned_file_stays_open_until_unpinned() -> None:
    cache = FileCache(SimulatedFileSystem(), open_files_max=1)
    file = cache.create("a")
    cache.pin(file)
    cache.pin(file)
    cache.create("b")
    cache.create("c")
    cache.close_file("a")
    cache.unpin(file)
    file.fdatasync()
    cache.unpin(file)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.fdatasync()


def test_missing_file_raises_file_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        FileCache(SimulatedFileSystem()).get("missing")
