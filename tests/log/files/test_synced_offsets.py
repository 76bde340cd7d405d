"""The file with a node's synced offsets."""

from __future__ import annotations

import random

from chronik.log.files.synced_offsets import SLOT_BYTES, TRACKED_REMOVALS_MAX, SyncedOffsets
from tests.files.simulated_files import SimulatedFileSystem

PATH = "state/synced-offsets"
A, B = b"a" * 16, b"b" * 16


def test_recorded_offsets_survive_kill_and_close() -> None:
    files = SimulatedFileSystem()
    synced = SyncedOffsets(files, PATH)
    for partition in range(100):
        synced.record(A, partition, partition * 10)
    synced.record(A, 5, 7)  # a lower offset, reported late
    again = SyncedOffsets(files.kill(), PATH)
    assert [again.get(A, partition) for partition in range(100)] == [partition * 10 for partition in range(100)]
    assert again.get(B, 0) == 0
    synced.close()
    assert SyncedOffsets(files.crash(0), PATH).get(A, 99) == 990


def test_power_failure_leaves_recorded_or_lower_offset() -> None:
    files = SimulatedFileSystem()
    synced = SyncedOffsets(files, PATH)
    chance = random.Random(4)
    recorded: dict[int, set[int]] = {}
    for step in range(200):
        partition = chance.randrange(20)
        offset = synced.get(A, partition) + chance.randint(1, 5)
        recorded.setdefault(partition, {0}).add(offset)
        synced.record(A, partition, offset)
        if step % 50 == 49:
            synced.sync()
        after = SyncedOffsets(files.crash(step), PATH)
        for known, offsets in recorded.items():
            assert after.get(A, known) in offsets


def test_lowered_offset_is_durable_immediately() -> None:
    files = SimulatedFileSystem()
    synced = SyncedOffsets(files, PATH)
    synced.record(A, 0, 100)
    synced.sync()
    synced.lower(A, 0, 40)
    assert all(SyncedOffsets(files.crash(seed), PATH).get(A, 0) == 40 for seed in range(20))


def test_slots_of_removed_partitions_are_reused() -> None:
    files = SimulatedFileSystem()
    synced = SyncedOffsets(files, PATH)
    for partition in range(50):
        synced.record(A, partition, 1)
    for partition in range(50):
        synced.remove(A, partition)
    for partition in range(50):
        synced.record(B, partition, 2)
    assert files.size(PATH) == 50 * SLOT_BYTES
    again = SyncedOffsets(files.kill(), PATH)
    assert again.get(A, 3) == 0
    assert again.get(B, 3) == 2


def test_removed_offset_is_not_restored_for_recreated_partition() -> None:
    """The new log starts at offset 0: with the old offset, damage below it would be kept instead of truncated."""
    files = SimulatedFileSystem()
    synced = SyncedOffsets(files, PATH)
    synced.record(A, 0, 100)
    synced.sync()
    synced.remove(A, 0)
    assert any(SyncedOffsets(files.crash(seed), PATH).get(A, 0) for seed in range(20)), "the removal is not durable yet"
    assert synced.get(A, 0) == 0, "opening the new log makes the removal durable"
    assert not any(SyncedOffsets(files.crash(seed), PATH).get(A, 0) for seed in range(20))


def test_removed_offset_is_not_restored_by_restarted_process() -> None:
    files = SimulatedFileSystem()
    synced = SyncedOffsets(files, PATH)
    synced.record(A, 0, 100)
    synced.sync()
    synced.remove(A, 0)
    after = files.kill()
    assert SyncedOffsets(after, PATH).get(A, 0) == 0
    assert not any(SyncedOffsets(after.crash(seed), PATH).get(A, 0) for seed in range(20))


def test_durable_removals_are_not_tracked() -> None:
    files = SimulatedFileSystem()
    synced = SyncedOffsets(files, PATH)
    for partition in range(10 * TRACKED_REMOVALS_MAX):
        synced.record(A, partition, 1)
        synced.remove(A, partition)
        if partition % 100 == 0:
            synced.sync()
    assert len(synced._removed) <= TRACKED_REMOVALS_MAX + 100
    syncs = files.events
    assert synced.get(A, 0) == 0
    assert files.events == syncs, "the removal was already durable"
