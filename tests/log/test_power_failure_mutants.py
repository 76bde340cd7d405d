"""Mutants that each violate a durability rule; the power failure test must detect all of them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from chronik.log import recovery
from chronik.log.compaction import Compaction
from chronik.log.files.synced_offsets import SyncedOffsets
from chronik.log.leader_epochs import LeaderEpochHistory
from chronik.log.partition_log import PartitionLog
from chronik.log.segments import LogSegments, SegmentSwaps
from chronik.log.sync import SyncTask
from tests.files.simulated_files import SimulatedFile, SimulatedFileSystem

from .script import check_partitions, new_states, run_script

pytestmark = pytest.mark.slow


def acknowledge_before_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SyncTask, "run", lambda ticket: None)


def skip_directory_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedFileSystem, "sync_directory", lambda files, path: None)


def skip_file_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedFile, "fdatasync", lambda file: None)


def swap_segments_without_syncs(patch: pytest.MonkeyPatch) -> None:
    begin = SegmentSwaps.start

    def all_at_once(swaps: SegmentSwaps, segment: object, replaced: object) -> None:
        begin(swaps, segment, replaced)  # type: ignore[arg-type]
        while swaps:
            swaps.record_sync_start()
            swaps.advance(0)

    patch.setattr(SegmentSwaps, "start", all_at_once)


def skip_completion_of_swaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_finish_swap", lambda files, directory, present, *rest: present)


def truncate_without_lowering_synced_offset(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SyncedOffsets, "lower", lambda synced, topic_id, partition, offset: None)


def keep_truncated_segments(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedFile, "truncate", lambda file, size: None)


def delete_before_log_start_is_durable(patch: pytest.MonkeyPatch) -> None:
    def at_once(log: PartitionLog, offset: int) -> int:
        log.log_start_offset = max(log.log_start_offset, offset)
        log._segments.delete_before(log.log_start_offset, 0)
        return log.log_start_offset

    patch.setattr(PartitionLog, "delete_records_before", at_once)


def skip_leader_epoch_sync(patch: pytest.MonkeyPatch) -> None:
    store = LeaderEpochHistory.write_pending

    def unsynced(history: LeaderEpochHistory) -> None:
        store(history)

    patch.setattr(LeaderEpochHistory, "write_pending", unsynced)


def compact_latest_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Compaction, "_is_latest_record", lambda compaction, offset, key: offset % 7 != 0)


def close_segments_without_trim(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogSegments, "trim_active", lambda segments: None)


def skip_sync_of_trimmed_segment(patch: pytest.MonkeyPatch) -> None:
    def unsynced(segments: LogSegments) -> None:
        segments.all[-1].trim()

    patch.setattr(LogSegments, "trim_active", unsynced)


MUTANTS = [
    acknowledge_before_sync,
    skip_directory_sync,
    skip_file_sync,
    swap_segments_without_syncs,
    skip_completion_of_swaps,
    truncate_without_lowering_synced_offset,
    keep_truncated_segments,
    delete_before_log_start_is_durable,
    skip_leader_epoch_sync,
    compact_latest_records,
    close_segments_without_trim,
    skip_sync_of_trimmed_segment,
]


class MutantDetected(Exception):
    pass


def run_with_cuts(seed: int) -> None:
    files = SimulatedFileSystem()
    promises = new_states()

    def cut(action: str, path: str) -> None:
        try:
            check_partitions(files.crash(files.events), [copy.copy(promise) for promise in promises])
        except Exception as error:
            raise MutantDetected from error

    files.before_event = cut
    run_script(files, promises, seed, operations=400)


def run_scripts() -> None:
    for seed in range(1, 9):
        run_with_cuts(seed)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_power_failure_test_detects_mutant(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises((MutantDetected, AssertionError)):
        run_scripts()
