"""Preallocated space after the batches of the active segment is never mistaken for data."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.clock import ManualClock
from chronik.files import DiskFileSystem
from chronik.log.config import LogConfig
from chronik.log.segment import PREALLOCATED_BYTES_MAX, PREALLOCATED_BYTES_MIN, SMALL_SYNC_BYTES, Preallocation
from chronik.protocol.errors import CorruptRecords
from tests.files.simulated_files import SimulatedFileSystem
from tests.log.harness import NOW_MS, TOPIC_ID, LogHarness, batch, read_values
from tests.log.script import new_states, run_script

LARGE = LogConfig(segment_bytes=1 << 20, index_interval_bytes=200, file_delete_delay_ms=0)
UNLIMITED = 1 << 30


def commit(world: LogHarness, value: bytes) -> None:
    """Append and sync one record, as the broker does."""
    world.append(batch(value))
    ticket = world.log.begin_sync()
    assert ticket is not None
    ticket.run()
    world.log.complete_sync(ticket)
    world.synced.record(TOPIC_ID, 0, world.log.synced_offset)


def world_with_preallocation(files: SimulatedFileSystem | None = None, open_files_max: int = 64) -> LogHarness:
    world = LogHarness(files, LARGE, open_files_max=open_files_max)
    for value in (b"a", b"b", b"c"):
        commit(world, value)
    return world


def test_small_syncs_preallocate_without_changing_log_size() -> None:
    world = world_with_preallocation()
    raw = world.simulated_files.read(world.path(".log"))
    batch_bytes = len(batch(b"a"))
    assert world.log.size == 3 * batch_bytes
    assert len(raw) == 2 * batch_bytes + PREALLOCATED_BYTES_MIN
    assert not any(raw[world.log.size :])
    assert read_values(world.log) == [b"a", b"b", b"c"]


def test_sync_within_preallocated_space_keeps_file_length() -> None:
    world = world_with_preallocation()
    length = len(world.simulated_files.read(world.path(".log")))
    commit(world, b"d")
    assert len(world.simulated_files.read(world.path(".log"))) == length


def test_recovery_after_kill_truncates_only_preallocated_space() -> None:
    world = world_with_preallocation().reopen()
    assert len(world.simulated_files.read(world.path(".log"))) == world.log.size
    assert read_values(world.log) == [b"a", b"b", b"c"]
    commit(world, b"d")
    assert read_values(world.reopen().log) == [b"a", b"b", b"c", b"d"]


def test_recovery_ignores_preallocated_space_without_synced_offset() -> None:
    world = world_with_preallocation()
    for seed in range(20):
        after = world.reopen(world.simulated_files.crash(seed))
        assert after.log.log_end_offset == 3
        assert read_values(after.log) == [b"a", b"b", b"c"]


def test_zeros_below_synced_offset_are_damage() -> None:
    world = world_with_preallocation()
    raw = world.simulated_files.read(world.path(".log"))
    kept = 2 * len(batch(b"a"))
    world.simulated_files.overwrite(world.path(".log"), raw[:kept] + bytes(len(raw) - kept))
    after = world.reopen()
    assert after.log.log_end_offset == 3, "the offset must not be reused"
    assert len(after.log.read(0, 1 << 20, 3)) == kept
    with pytest.raises(CorruptRecords):
        after.log.read(2, 1 << 20, 3)


def test_closed_log_has_no_preallocated_space() -> None:
    world = world_with_preallocation()
    world.close()
    assert len(world.simulated_files.read(world.path(".log"))) == 3 * len(batch(b"a"))
    assert read_values(world.reopen(world.simulated_files).log) == [b"a", b"b", b"c"]


def test_closed_segment_has_no_preallocated_space_after_power_failure() -> None:
    world = world_with_preallocation()
    first = world.path(".log")
    world.log.roll()
    commit(world, b"d")
    for seed in range(20):
        after = world.reopen(world.simulated_files.crash(seed))
        assert len(after.simulated_files.read(first)) == 3 * len(batch(b"a"))
        assert read_values(after.log) == [b"a", b"b", b"c", b"d"]


def assert_power_failures_lose_nothing(world: LogHarness, values: list[bytes]) -> None:
    for seed in range(100):
        assert read_values(world.reopen(world.simulated_files.crash(seed)).log) == values, seed


def test_trimmed_segment_stays_trimmed_after_kill_and_power_failure() -> None:
    world = world_with_preallocation()
    world.log.roll()
    world.append(batch(b"d"))
    after = world.reopen()
    commit(after, b"e")
    assert_power_failures_lose_nothing(after, [b"a", b"b", b"c", b"d", b"e"])


def test_trimmed_log_stays_trimmed_after_kill_during_close() -> None:
    class Killed(Exception):
        pass

    def kill(action: str, path: str) -> None:
        if action == "sync":
            raise Killed

    world = world_with_preallocation()
    world.simulated_files.before_event = kill
    with pytest.raises(Killed):
        world.log.close()
    after = world.reopen()
    after.log.roll()
    commit(after, b"d")
    assert_power_failures_lose_nothing(after, [b"a", b"b", b"c", b"d"])


def test_truncated_log_has_no_preallocated_space_and_accepts_appends() -> None:
    world = world_with_preallocation()
    world.log.truncate_to(1)
    world.synced.lower(TOPIC_ID, 0, 1)
    assert len(world.simulated_files.read(world.path(".log"))) == len(batch(b"a"))
    for value in (b"x", b"y"):
        commit(world, value)
    assert read_values(world.reopen().log) == [b"a", b"x", b"y"]


def test_append_after_file_was_evicted_continues_after_last_batch() -> None:
    world = world_with_preallocation(open_files_max=1)
    world.cache.create("another").close()
    world.cache.close_file(world.path(".log"))
    commit(world, b"d")
    assert read_values(world.log) == [b"a", b"b", b"c", b"d"]


def test_append_succeeds_when_preallocation_fails() -> None:
    files = SimulatedFileSystem()
    files.reserves = False
    world = world_with_preallocation(files)
    assert len(files.read(world.path(".log"))) == world.log.size
    assert read_values(world.reopen().log) == [b"a", b"b", b"c"]


def test_preallocated_space_is_trimmed_on_real_disk(tmp_path: Path) -> None:
    first = LogHarness(DiskFileSystem(tmp_path), LARGE, ManualClock(NOW_MS))
    for value in (b"a", b"b", b"c"):
        commit(first, value)
    (path,) = tmp_path.glob("topics/*/0/*.log")
    assert path.stat().st_size >= first.log.size
    second = first.reopen(DiskFileSystem(tmp_path))
    assert path.stat().st_size == second.log.size
    commit(second, b"d")
    assert read_values(second.log) == [b"a", b"b", b"c", b"d"]
    second.close()
    assert path.stat().st_size == 4 * len(batch(b"a"))
    first.cache.close()
    first.synced.close()


def test_power_failure_script_uses_preallocation(monkeypatch: pytest.MonkeyPatch) -> None:
    extended = Preallocation.next_length
    reserved: list[int] = []

    def counted(budget: Preallocation, size: int, size_max: int) -> int | None:
        end = extended(budget, size, size_max)
        if end is not None:
            reserved.append(end)
        return end

    monkeypatch.setattr(Preallocation, "next_length", counted)
    run_script(SimulatedFileSystem(), new_states(), seed=7, operations=1000)
    assert len(reserved) > 50


# Amount of preallocation


def test_first_sync_of_segment_does_not_preallocate() -> None:
    assert Preallocation().next_length(100, UNLIMITED) is None


def preallocation_after(size: int) -> Preallocation:
    budget = Preallocation()
    budget.next_length(size, UNLIMITED)
    return budget


def test_preallocation_grows_with_segment_within_bounds() -> None:
    assert preallocation_after(100).next_length(200, UNLIMITED) == 200 + PREALLOCATED_BYTES_MIN
    assert preallocation_after(100_000).next_length(100_001, UNLIMITED) == 200_002
    assert preallocation_after(1 << 29).next_length((1 << 29) + 1, UNLIMITED) == (1 << 29) + 1 + PREALLOCATED_BYTES_MAX


def test_preallocation_does_not_exceed_segment_bytes() -> None:
    assert preallocation_after(100).next_length(200, 1000) == 1000
    assert preallocation_after(100).next_length(1000, 1000) is None


def test_large_syncs_do_not_preallocate() -> None:
    budget = preallocation_after(100)
    assert budget.next_length(101 + SMALL_SYNC_BYTES, UNLIMITED) is None
    assert budget.next_length(102 + SMALL_SYNC_BYTES, UNLIMITED) is not None


def test_preallocation_is_not_repeated_before_it_is_used() -> None:
    budget = preallocation_after(100)
    end = budget.next_length(200, UNLIMITED)
    assert end is not None
    assert budget.next_length(end, UNLIMITED) is None
    assert budget.next_length(end + 1, UNLIMITED) is not None
