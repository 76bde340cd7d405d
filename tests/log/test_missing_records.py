"""A log whose synced records are missing knows their offsets, and can replicate them from a leader again."""

from __future__ import annotations

import pytest

from chronik.log.config import LogConfig

from .harness import LogHarness, batch, read_values

RECORDS = 50


def filled(config: LogConfig | None = None) -> LogHarness:
    world = LogHarness(config=config)
    for number in range(RECORDS):
        world.append(batch(b"%d" % number), epoch=number // 20)
    world.complete_syncs()
    return world


@pytest.mark.parametrize("cut", [0, 1, 5, 60, 61, 200, 350, 699, 10_000])
def test_log_with_missing_records_is_truncated_and_refilled(cut: int) -> None:
    leader, world = filled(), filled()
    path = world.path(".log", -1)
    disk = world.simulated_files.kill()
    file = disk.open(path)
    file.truncate(max(file.size - cut, 0))
    file.close()
    lost = world.reopen(disk)
    if cut == 0:
        assert lost.log.missing_start_offset is None
        return
    missing_from = lost.log.missing_start_offset
    assert missing_from is not None
    assert missing_from < RECORDS == lost.log.log_end_offset
    assert lost.log.truncate_to(missing_from) == missing_from
    assert lost.log.missing_start_offset is None
    while lost.log.log_end_offset < RECORDS:
        offset = lost.log.log_end_offset
        assert lost.log.end_offset_for_epoch(lost.log.epochs.latest_epoch)[1] == offset
        assert lost.log.append_as_follower(leader.log.read(offset, 300, RECORDS)) is not None
    lost.complete_syncs()
    for world in (lost, lost.reopen()):
        assert read_values(world.log) == read_values(leader.log)
        assert world.log.epochs.entries() == leader.log.epochs.entries()


def test_missing_directory_is_an_empty_log_with_all_records_missing() -> None:
    world = filled()
    disk = world.simulated_files.kill()
    for path in [path for path in disk.paths() if "synced" not in path]:
        disk.remove(path)
    lost = world.reopen(disk)
    assert (lost.log.missing_start_offset, lost.log.log_end_offset) == (0, RECORDS)
    lost.log.truncate_fully_and_start_at(0)
    assert (lost.log.missing_start_offset, lost.log.log_end_offset) == (None, 0)
    leader = filled()
    while lost.log.log_end_offset < RECORDS:
        assert lost.log.append_as_follower(leader.log.read(lost.log.log_end_offset, 300, RECORDS)) is not None
    assert read_values(lost.log) == read_values(leader.log)


def test_undamaged_log_has_no_missing_records() -> None:
    world = filled()
    assert world.log.missing_start_offset is None
    assert world.reopen().log.missing_start_offset is None
    assert LogHarness().log.missing_start_offset is None
