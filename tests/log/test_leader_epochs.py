"""The leader epoch history: end offsets of epochs, and truncation."""

from __future__ import annotations

import pytest

from chronik.errors import InvariantError
from chronik.log.config import LogConfig

from .harness import LogHarness, batch, read_records, read_values

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100, file_delete_delay_ms=0)


def three_epochs() -> LogHarness:
    """Return a log with offsets 0-9 in epoch 2, 10-19 in epoch 5 and 20-29 in epoch 6."""
    world = LogHarness(config=CONFIG)
    for number in range(30):
        world.append(batch(b"%d" % number), epoch=(2, 5, 6)[number // 10])
    return world


@pytest.mark.parametrize("way", ["open", "close", "kill"])
def test_end_offset_for_epoch_matches_kafka(way: str) -> None:
    world = three_epochs()
    if way == "close":
        world.close()
    log = world.log if way == "open" else world.reopen().log
    assert log.find_end_offset_for_epoch(6) == (6, 30)
    assert log.find_end_offset_for_epoch(5) == (5, 20)
    assert log.find_end_offset_for_epoch(4) == (2, 10)
    assert log.find_end_offset_for_epoch(3) == (2, 10)
    assert log.find_end_offset_for_epoch(2) == (2, 10)
    assert log.find_end_offset_for_epoch(1) == (1, 0)
    assert log.find_end_offset_for_epoch(7) == (-1, -1)
    assert log.find_end_offset_for_epoch(-1) == (-1, -1)


def test_epoch_without_batches_is_not_stored() -> None:
    world = three_epochs()
    world.log.epochs.assign(8, 30)
    assert world.log.find_end_offset_for_epoch(8) == (8, 30)
    assert world.log.find_end_offset_for_epoch(7) == (6, 30)
    world.log.epochs.assign(9, 30)
    assert world.log.find_end_offset_for_epoch(8) == (6, 30)
    world.close()
    again = world.reopen()
    assert again.log.find_end_offset_for_epoch(6) == (6, 30)
    assert again.log.find_end_offset_for_epoch(9) == (-1, -1)


def test_epoch_cannot_start_below_log_end_offset() -> None:
    world = three_epochs()
    with pytest.raises(InvariantError):
        world.log.epochs.assign(9, 20)


@pytest.mark.parametrize("offset", range(31))
def test_truncation_at_offset_is_durable(offset: int) -> None:
    world = three_epochs()
    world.sync()
    assert world.log.truncate_to(offset) == offset
    expected = [b"%d" % number for number in range(offset)]
    assert read_values(world.log) == expected
    for seed in range(3):
        assert read_values(LogHarness(world.simulated_files.crash(seed), CONFIG).log) == expected
    info = world.append(batch(b"new"), epoch=7)
    assert info.base_offset == offset
    world.sync()
    again = LogHarness(world.simulated_files.crash(9), CONFIG)
    assert read_values(again.log) == [*expected, b"new"]
    assert again.log.find_end_offset_for_epoch(7) == (7, offset + 1)
    assert again.log.find_end_offset_for_epoch(6) == world.log.find_end_offset_for_epoch(6)


def test_truncation_within_batch_removes_whole_batch() -> None:
    world = LogHarness(config=CONFIG)
    world.append(batch(b"a", b"b", b"c"))
    world.append(batch(b"d", b"e", b"f"))
    assert world.log.truncate_to(4) == 3
    assert read_values(world.log) == [b"a", b"b", b"c"]


def test_truncate_fully_restarts_log_at_another_offset() -> None:
    world = three_epochs()
    world.sync()
    for start in (100, 50):
        world.log.truncate_fully_and_start_at(start)
        assert (world.log.log_start_offset, world.log.log_end_offset, world.log.synced_offset) == (start,) * 3
        assert world.log.find_end_offset_for_epoch(6) == (-1, -1)
        for seed in range(5):
            again = LogHarness(world.simulated_files.crash(seed), CONFIG)
            assert (again.log.log_start_offset, again.log.log_end_offset) == (start, start)
        world.append(batch(b"x"), epoch=1)
        assert [record.offset for record in read_records(world.log)] == [start]
        world.complete_syncs()


def test_epochs_below_log_start_are_removed_from_file() -> None:
    world = LogHarness(config=CONFIG)
    for number in range(300):
        world.append(batch(b"%d" % number), epoch=number)
    world.log.delete_records_before(290)
    world.close()
    again = world.reopen()
    assert len(again.log.epochs.entries()) < 20
    assert [record.offset for record in read_records(again.log)] == list(range(290, 300))
