from __future__ import annotations

import pytest

from chronik.log.config import LogConfig

from .harness import NOW_MS, LogHarness, batch

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=120, file_delete_delay_ms=0)


def world_of(config: LogConfig, *seconds: int, size: int = 1) -> LogHarness:
    """Return a log whose batches have two records each and these timestamps."""
    world = LogHarness(config=config)
    for second in seconds:
        world.append(batch(b"a" * size, b"b", timestamp=NOW_MS + 1000 * second))
    world.sync()
    return world


@pytest.mark.parametrize("restart", [False, True])
def test_timestamp_at_offset_is_that_of_its_batch(restart: bool) -> None:
    world = world_of(SMALL, *range(40))
    assert world.log.segment_count > 3
    log = world.reopen().log if restart else world.log
    assert [log.timestamp_at(offset) for offset in range(80)] == [NOW_MS + 1000 * (offset // 2) for offset in range(80)]


def test_large_batches_between_index_entries_are_skipped() -> None:
    world = world_of(LogConfig(), *range(5), size=50_000)
    assert [world.log.timestamp_at(offset) for offset in (0, 3, 9)] == [NOW_MS, NOW_MS + 1000, NOW_MS + 4000]


def test_deleted_offset_has_timestamp_of_log_start() -> None:
    world = world_of(SMALL, *range(10))
    world.log.delete_records_before(6)
    assert world.log.timestamp_at(0) == NOW_MS + 3000


def test_timestamp_is_none_beyond_end_and_in_empty_log() -> None:
    assert LogHarness().log.timestamp_at(0) is None
    assert world_of(SMALL, 1).log.timestamp_at(2) is None
