"""Rules of durability, broken one at a time: the script with its power cuts must notice each of them."""

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


def acknowledge_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SyncTicket, "run", lambda ticket: None)


def forget_the_folder(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TwinFiles, "sync_folder", lambda files, path: None)


def forget_the_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TwinFile, "fdatasync", lambda file: None)


def exchange_segments_without_waiting(patch: pytest.MonkeyPatch) -> None:
    begin = Swaps.begin

    def all_at_once(swaps: Swaps, segment: object, replaced: object) -> None:
        begin(swaps, segment, replaced)  # type: ignore[arg-type]
        while swaps:
            swaps.sync_begins()
            swaps.advance(0)

    patch.setattr(Swaps, "begin", all_at_once)


def leave_exchanges_unfinished(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_finish_swap", lambda files, folder, present, *rest: present)


def truncate_without_lowering_the_synced_offset(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SyncedOffsets, "lower", lambda synced, topic_id, partition, offset: None)


def leave_what_was_cut_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TwinFile, "truncate", lambda file, size: None)


def delete_before_the_start_is_stored(patch: pytest.MonkeyPatch) -> None:
    def at_once(log: PartitionLog, offset: int) -> int:
        log.log_start_offset = max(log.log_start_offset, offset)
        log._segments.drop_before(log.log_start_offset, 0)
        return log.log_start_offset

    patch.setattr(PartitionLog, "delete_records_before", at_once)


def forget_leader_epochs(patch: pytest.MonkeyPatch) -> None:
    store = EpochHistory.store

    def unsynced(history: EpochHistory) -> None:
        store(history)

    patch.setattr(EpochHistory, "store", unsynced)


def compact_what_is_not_the_latest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Compaction, "_is_latest", lambda compaction, offset, key: offset % 7 != 0)


def close_segments_with_their_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segments, "release_room", lambda segments: None)


def forget_that_a_segment_was_cut_where_it_ends(patch: pytest.MonkeyPatch) -> None:
    def unsynced(segments: Segments) -> None:
        segments.all[-1].release_room()

    patch.setattr(Segments, "release_room", unsynced)


MUTANTS = [
    acknowledge_before_the_sync,
    forget_the_folder,
    forget_the_file,
    exchange_segments_without_waiting,
    leave_exchanges_unfinished,
    truncate_without_lowering_the_synced_offset,
    leave_what_was_cut_off,
    delete_before_the_start_is_stored,
    forget_leader_epochs,
    compact_what_is_not_the_latest,
    close_segments_with_their_room,
    forget_that_a_segment_was_cut_where_it_ends,
]


class Noticed(Exception):
    pass


def run_with_cuts(seed: int) -> None:
    files = TwinFiles()
    promises = new_promises()

    def cut(action: str, path: str) -> None:
        try:
            check(files.crash(files.events), [copy.copy(promise) for promise in promises])
        except Exception as error:
            raise Noticed from error

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
    with pytest.raises((Noticed, AssertionError)):
        run_scripts()
