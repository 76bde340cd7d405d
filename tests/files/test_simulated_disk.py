"""The simulated disk must lose at least as much as a real disk may lose."""

from __future__ import annotations

import errno

import pytest

from chronik.errors import StorageError
from chronik.files import read_file, write_atomically
from tests.files.simulated_files import SimulatedFileSystem

SEEDS = range(300)


def durable(content: bytes) -> SimulatedFileSystem:
    files = SimulatedFileSystem()
    file = files.create("a")
    file.append(content)
    file.fdatasync()
    files.sync_directory("")
    return files


def outcomes(files: SimulatedFileSystem, path: str = "a") -> set[bytes | None]:
    return {read_file(files.crash(seed), path) for seed in SEEDS}


def test_preallocated_space_may_be_lost_without_losing_data() -> None:
    files = durable(b"x" * 2000)
    files.open("a").preallocate(3000)
    assert outcomes(files) == {b"x" * 2000, b"x" * 2000 + bytes(1000)}
    files.open("a").preallocate(1000)
    assert outcomes(files) == {b"x" * 2000, b"x" * 2000 + bytes(1000)}


def test_synced_bytes_survive_power_failure() -> None:
    assert outcomes(durable(b"x" * 2000)) == {b"x" * 2000}


def test_unsynced_write_may_be_lost_kept_or_torn() -> None:
    files = durable(b"")
    files.open("a").append(b"1" * 512 + b"2" * 512 + b"3" * 512)
    seen = outcomes(files)
    assert b"" in seen
    assert b"1" * 512 + b"2" * 512 + b"3" * 512 in seen
    assert any(content is not None and len(content) % 512 > 0 for content in seen), "torn"
    assert bytes(512) + b"2" * 512 in seen, "a later sector without the previous one"
    assert bytes(1536) in seen, "the length without the data"


def test_unsynced_truncation_may_be_lost() -> None:
    files = durable(b"abc")
    files.open("a").truncate(1)
    assert outcomes(files) == {b"abc", b"a"}


def test_name_is_durable_after_directory_sync() -> None:
    files = SimulatedFileSystem()
    file = files.create("a")
    file.append(b"x")
    file.fdatasync()
    assert outcomes(files) == {None, b"x"}
    files.sync_directory("")
    assert outcomes(files) == {b"x"}
    files.remove("a")
    assert outcomes(files) == {None, b"x"}


def test_names_are_stored_in_any_order_but_renames_are_atomic() -> None:
    files = durable(b"old")
    new = files.create("b")
    new.append(b"new")
    new.fdatasync()
    files.sync_directory("")
    files.rename("b", "a")
    files.create("c").close()
    seen = {
        (read_file(after, "a"), after.exists("b"), after.exists("c")) for after in (files.crash(seed) for seed in SEEDS)
    }
    assert seen == {(b"old", True, False), (b"old", True, True), (b"new", False, False), (b"new", False, True)}


def test_file_is_lost_with_its_unsynced_directory() -> None:
    files = SimulatedFileSystem()
    files.make_directory("f")
    file = files.create("f/a")
    file.append(b"x")
    file.fdatasync()
    files.sync_directory("f")
    assert outcomes(files, "f/a") == {None, b"x"}
    files.sync_directory("")
    assert outcomes(files, "f/a") == {b"x"}


def test_atomic_write_leaves_old_or_new_contents_at_every_event() -> None:
    files = durable(b"old")
    seen: set[bytes | None] = set()
    files.before_event = lambda action, path: seen.update(outcomes(files))
    write_atomically(files, "a", b"new" * 1000)
    assert seen == {b"old", b"new" * 1000}
    assert outcomes(files) == {b"new" * 1000}


def test_failed_sync_drops_unsynced_pages() -> None:
    files = durable(b"")
    file = files.open("a")
    file.append(b"x")
    files.fail_at(files.events, errno.EIO)
    with pytest.raises(StorageError):
        file.fdatasync()
    assert file.pread(1, 0) == b"x"
    assert outcomes(files) == {b""}


def test_simulated_crash_does_not_change_original_disk() -> None:
    files = durable(b"abc")
    files.open("a").append(b"def")
    after = files.crash(1)
    after.open("a").truncate(0)
    assert files.read("a") == b"abcdef"


def test_killed_process_leaves_all_writes_to_its_successor() -> None:
    files = durable(b"abc")
    files.open("a").append(b"def")
    files.create("b").close()
    after = files.kill()
    assert after.read("a") == b"abcdef"
    assert after.exists("b")
    assert b"abc" in outcomes(after), "still not synced"
