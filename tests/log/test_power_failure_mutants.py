"""Mutants that each violate a durability rule; the power failure test must detect all of them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from chronik.log import recovery
from chronik.log.compaction import Compaction
from chronik.log.epochs import EpochHistory
from chronik.log.files.synced import SyncedOffsets
from chronik.log.partition import PartitionLog
from chronik.log.segments import Segments
from chronik.log.swaps import Swaps
from chronik.log.sync import SyncTicket
from tests.files.twin import TwinFile, TwinFiles

from .script import check, new_promises, run_script

pytestmark = pytest.mark.slow


def acknowledge_before_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SyncTicket, "run", lambda ticket: None)


def skip_directory_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TwinFiles, "sync_folder", lambda files, path: None)


def skip_file_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TwinFile, "fdatasync", lambda file: None)


def swap_segments_without_syncs(patch: pytest.MonkeyPatch) -> None:
    begin = Swaps.begin

    def all_at_once(swaps: Swaps, segment: object, replaced: object) -> None:
        begin(swaps, segment, replaced)  # type: ignore[arg-type]
        while swaps:
            swaps.sync_begins()
            swaps.advance(0)

    patch.setattr(Swaps, "begin", all_at_once)


def skip_completion_of_swaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_finish_swap", lambda files, directory, present, *rest: present)


def truncate_without_lowering_synced_offset(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SyncedOffsets, "lower", lambda synced, topic_id, partition, offset: None)


def keep_truncated_segments(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TwinFile, "truncate", lambda file, size: None)


def delete_before_log_start_is_durable(patch: pytest.MonkeyPatch) -> None:
    def at_once(log: PartitionLog, offset: int) -> int:
        log.log_start_offset = max(log.log_start_offset, offset)
        log._segments.drop_before(log.log_start_offset, 0)
        return log.log_start_offset

    patch.setattr(PartitionLog, "delete_records_before", at_once)


def skip_leader_epoch_sync(patch: pytest.MonkeyPatch) -> None:
    store = EpochHistory.store

    def unsynced(history: EpochHistory) -> None:
        store(history)

    patch.setattr(EpochHistory, "store", unsynced)


def compact_latest_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Compaction, "_is_latest", lambda compaction, offset, key: offset % 7 != 0)


def close_segments_without_trim(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segments, "release_room", lambda segments: None)


def skip_sync_of_trimmed_segment(patch: pytest.MonkeyPatch) -> None:
    def unsynced(segments: Segments) -> None:
        segments.all[-1].release_room()

    patch.setattr(Segments, "release_room", unsynced)


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
    files = TwinFiles()
    promises = new_promises()

    def cut(action: str, path: str) -> None:
        try:
            check(files.crash(files.events), [copy.copy(promise) for promise in promises])
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
