"""The cache of open files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chronik.files import FileCache, RealFiles
from chronik.files.cache import EVICTION_TRIES_MAX
from tests.files.twin import TwinFiles


def test_never_more_than_the_limit_are_open(tmp_path: Path) -> None:
    cache = FileCache(RealFiles(tmp_path), open_files_max=10)
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


def test_the_file_that_was_not_used_for_longest_goes_first() -> None:
    cache = FileCache(TwinFiles(), open_files_max=2)
    a, b = cache.create("a"), cache.create("b")
    assert cache.get("a") is a
    cache.create("c")
    assert cache.get("a") is a
    assert cache.get("b") is not b


def test_what_is_unsynced_is_never_closed_to_make_room() -> None:
    cache = FileCache(TwinFiles(), open_files_max=4)
    dirty = []
    for number in range(30):
        dirty.append(cache.create(str(number)))
        dirty[-1].append(b"x")
    for number in range(30, 60):
        cache.create(str(number)).append(b"x")
    assert all(cache.get(file.path) is file for file in dirty)
    for number in range(60):
        cache.get(str(number)).fdatasync()
    for number in range(60, 60 + 60 // EVICTION_TRIES_MAX + 10):
        cache.create(str(number))
    assert len(cache) <= 4


def test_expendable_files_make_room_even_unsynced() -> None:
    cache = FileCache(TwinFiles(), open_files_max=4)
    for number in range(30):
        cache.create(str(number), expendable=True).append(b"x")
    assert len(cache) <= 4


def test_a_pinned_file_stays_open_until_it_is_unpinned_even_when_forgotten() -> None:
    cache = FileCache(TwinFiles(), open_files_max=1)
    file = cache.create("a")
    cache.pin(file)
    cache.pin(file)
    cache.create("b")
    cache.create("c")
    cache.forget("a")
    cache.unpin(file)
    file.fdatasync()
    cache.unpin(file)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.fdatasync()


def test_a_missing_file_is_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        FileCache(TwinFiles()).get("missing")
