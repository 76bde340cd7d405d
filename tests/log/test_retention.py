"""Retention by time and size, DeleteRecords, and the deletion of files."""

from __future__ import annotations

import pytest

from chronik.log.config import LogConfig
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.files.simulated_files import SimulatedFileSystem

from .harness import FOLDER, NOW_MS, LogHarness, batch, read_records, read_values

HOUR_MS = 3_600_000


def hourly(config: LogConfig, hours: int = 10) -> LogHarness:
    """Return a log with one record and one segment per hour."""
    world = LogHarness(config=config)
    for hour in range(hours):
        world.append(batch(b"%d" % hour, timestamp=NOW_MS + hour * HOUR_MS))
        if hour < hours - 1:
            world.log.roll()
    world.clock.advance((hours - 1) * HOUR_MS / 1000)
    world.complete_syncs()
    return world


def segment_files(world: LogHarness) -> list[str]:
    return [path for path in world.simulated_files.paths() if path.startswith(FOLDER) and ".log" in path]


def test_segments_older_than_retention_ms_are_deleted() -> None:
    world = hourly(LogConfig(retention_ms=3 * HOUR_MS, file_delete_delay_ms=0))
    assert world.log.apply_retention(world.clock.now_ms()) == 6
    world.complete_syncs()
    assert (world.log.log_start_offset, world.log.log_end_offset) == (6, 10)
    assert read_values(world.log) == [b"6", b"7", b"8", b"9"]
    assert len(segment_files(world)) == 4
    with pytest.raises(KafkaError) as caught:
        world.log.read(5, 100, 10)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_expired_active_segment_is_deleted() -> None:
    world = hourly(LogConfig(retention_ms=3 * HOUR_MS, file_delete_delay_ms=0))
    world.clock.advance(10 * HOUR_MS / 1000)
    assert world.log.apply_retention(world.clock.now_ms()) == 10
    world.complete_syncs()
    assert (world.log.log_start_offset, world.log.log_end_offset) == (10, 10)
    assert segment_files(world) == []
    for again in (world.reopen(), world.reopen(world.simulated_files.crash(1))):
        assert (again.log.log_start_offset, again.log.log_end_offset) == (10, 10)
        assert again.append(batch(b"next")).base_offset == 10


def test_oldest_segments_beyond_retention_bytes_are_deleted() -> None:
    world = hourly(LogConfig(retention_ms=-1, file_delete_delay_ms=0))
    size = world.log.size // 10
    world.log.config = LogConfig(retention_ms=-1, retention_bytes=3 * size + 1, file_delete_delay_ms=0)
    assert world.log.apply_retention(world.clock.now_ms()) == 6
    world.complete_syncs()
    assert read_values(world.log) == [b"6", b"7", b"8", b"9"]


def test_segments_above_high_watermark_are_kept() -> None:
    world = hourly(LogConfig(retention_ms=0, file_delete_delay_ms=0))
    world.clock.advance(1)
    assert world.log.apply_retention(world.clock.now_ms(), up_to_offset=4) == 4
    assert world.log.log_start_offset == 4


@pytest.mark.parametrize("config", [
    LogConfig(retention_ms=-1),
    LogConfig(retention_ms=0, cleanup_policy=frozenset({"compact"})),
])  # fmt: skip
def test_unlimited_retention_deletes_nothing(config: LogConfig) -> None:
    world = hourly(config)
    world.clock.advance(10**6)
    assert world.log.apply_retention(world.clock.now_ms()) == 0
    assert len(read_values(world.log)) == 10


def test_records_without_timestamp_use_file_modification_time() -> None:
    files = SimulatedFileSystem()
    files.now_ms = NOW_MS
    world = LogHarness(files, LogConfig(retention_ms=HOUR_MS, file_delete_delay_ms=0))
    world.append(batch(b"old", timestamp=-1))
    assert world.log.apply_retention(NOW_MS + HOUR_MS) == 0
    assert world.log.apply_retention(NOW_MS + HOUR_MS + 1) == 1


def test_delete_records_advances_log_start_durably_with_next_sync() -> None:
    world = LogHarness()
    for number in range(30):
        world.append(batch(b"%d" % number))
    world.sync()
    segments = world.log.segment_count
    assert world.log.delete_records_before(17) == 17
    assert [record.offset for record in read_records(world.log)] == list(range(17, 30))
    assert LogHarness(world.simulated_files.crash(0), world.config).log.log_start_offset == 0
    world.complete_syncs()
    assert world.log.segment_count < segments
    for seed in range(20):
        again = LogHarness(world.simulated_files.crash(seed), world.config)
        assert [record.offset for record in read_records(again.log)] == list(range(17, 30))
    assert world.log.delete_records_before(5) == 17
    with pytest.raises(KafkaError) as caught:
        world.log.delete_records_before(31)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_delete_records_can_delete_all_records() -> None:
    world = LogHarness()
    for number in range(30):
        world.append(batch(b"%d" % number))
    world.log.delete_records_before(30)
    world.complete_syncs()
    assert read_records(world.log) == []
    again = world.reopen()
    assert (again.log.log_start_offset, again.log.log_end_offset) == (30, 30)
    assert again.append(batch(b"next")).base_offset == 30


def test_deleted_files_are_removed_after_file_delete_delay() -> None:
    world = hourly(LogConfig(retention_ms=0, file_delete_delay_ms=60_000))
    world.clock.advance(1)
    world.log.apply_retention(world.clock.now_ms(), up_to_offset=9)
    world.complete_syncs()
    assert len([path for path in segment_files(world) if path.endswith(".deleted")]) == 9
    assert not world.log.needs_sync
    world.clock.advance(61)
    assert world.log.needs_sync
    world.complete_syncs()
    assert len(segment_files(world)) == 1


def test_sync_succeeds_when_its_segment_is_deleted_meanwhile() -> None:
    world = LogHarness()
    for number in range(30):
        world.append(batch(b"%d" % number))
    world.sync()
    world.log.delete_records_before(29)
    world.append(batch(b"30"))
    ticket = world.log.begin_sync()
    assert ticket is not None
    world.append(batch(b"31"))
    ticket.run()
    world.log.complete_sync(ticket)
    assert world.log.synced_offset == 31
    assert world.log.segment_count <= 2
    world.complete_syncs()
    assert world.log.synced_offset == 32
