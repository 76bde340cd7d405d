"""Steps of a commit after each response, and the offsets that a table stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

import pytest

from chronik.errors import InvariantError
from chronik.pipeline.tables.iceberg.commit_protocol import (
    CONFLICTS_MAX,
    FAILURES_MAX,
    Abandoned,
    AbandonReason,
    CommitRequest,
    Committed,
    Outcome,
    Plan,
    Reload,
    Send,
    SnapshotCommit,
    TableHead,
)
from chronik.pipeline.tables.iceberg.landed_offsets import (
    OFFSETS_KEY,
    Ancestor,
    LandedOffsets,
    OffsetsDamagedError,
    encode_properties,
    read_stored_offsets,
)

HEAD = TableHead("uuid", 7, 1, frozenset({6, 7}))
MOVED = replace(HEAD, snapshot_id=8, snapshot_ids=frozenset({6, 7, 8}))


@pytest.fixture
def commit() -> SnapshotCommit:
    return SnapshotCommit(_ids(100))


def _ids(start: int) -> Callable[[], int]:
    numbers = count(start)
    return lambda: next(numbers)


def send(commit: SnapshotCommit, head: TableHead = HEAD) -> CommitRequest:
    """Bring a new commit to the point where its request is sent."""
    commit.reloaded(head)
    commit.planned()
    assert isinstance(commit.action, Send)
    return commit.action.request


def test_commit_is_planned_on_the_loaded_head(commit: SnapshotCommit) -> None:
    assert commit.action == Reload()
    assert send(commit) == CommitRequest(100, "uuid", 7, 1)


def test_accepted_request_is_committed(commit: SnapshotCommit) -> None:
    send(commit)
    commit.responded(Outcome.ACCEPTED)
    assert commit.action == Committed(100)
    assert not commit.is_undecided


def test_lost_response_is_committed_if_the_reloaded_table_has_the_id(commit: SnapshotCommit) -> None:
    send(commit)
    commit.responded(Outcome.UNKNOWN)
    assert commit.action == Reload()
    commit.reloaded(replace(HEAD, snapshot_id=101, snapshot_ids=frozenset({7, 100, 101})))
    assert isinstance(commit.action, Committed)
    assert commit.action.snapshot_id == 100


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.REJECTED])
def test_request_is_repeated_identically_if_the_head_is_unchanged(commit: SnapshotCommit, outcome: Outcome) -> None:
    request = send(commit)
    commit.responded(outcome)
    commit.reloaded(replace(HEAD, snapshot_ids=frozenset({7})))  # another tool has expired a snapshot
    assert commit.action == Send(request, is_repeated=True)


@pytest.mark.parametrize("head", [MOVED, replace(HEAD, schema_id=2)], ids=["main", "schema"])
def test_commit_is_planned_again_with_new_id_if_the_head_has_moved(commit: SnapshotCommit, head: TableHead) -> None:
    send(commit)
    commit.responded(Outcome.UNKNOWN)
    commit.reloaded(head)
    assert commit.action == Plan(CommitRequest(101, "uuid", head.snapshot_id, head.schema_id))


def test_first_of_two_plans_is_found_after_the_second_was_sent(commit: SnapshotCommit) -> None:
    send(commit)
    commit.responded(Outcome.UNKNOWN)
    send(commit, MOVED)
    commit.responded(Outcome.UNKNOWN)
    commit.reloaded(replace(HEAD, snapshot_id=100, snapshot_ids=frozenset({7, 8, 100})))
    assert commit.action == Committed(100)


def test_commit_stays_undecided_after_a_lost_response(commit: SnapshotCommit) -> None:
    send(commit)
    commit.responded(Outcome.UNKNOWN)
    send(commit, MOVED)
    commit.responded(Outcome.REJECTED)
    assert commit.is_undecided


def test_commit_is_decided_if_the_catalog_knows_its_conflicts(commit: SnapshotCommit) -> None:
    send(commit)
    commit.responded(Outcome.REJECTED)
    send(commit, MOVED)
    assert not commit.is_undecided


def test_commit_is_abandoned_after_the_maximum_number_of_failures(commit: SnapshotCommit) -> None:
    send(commit)
    sent = 1
    while not isinstance(commit.action, Abandoned):
        commit.responded(Outcome.UNKNOWN)
        commit.reloaded(HEAD)
        sent += isinstance(commit.action, Send)
    assert commit.action.reason is AbandonReason.FAILURES
    assert sent == FAILURES_MAX


def test_commit_is_abandoned_after_the_maximum_number_of_conflicts(commit: SnapshotCommit) -> None:
    plans = 0
    while not isinstance(commit.action, Abandoned):
        commit.reloaded(replace(HEAD, snapshot_id=plans))
        if isinstance(commit.action, Plan):
            plans += 1
            commit.planned()
            commit.responded(Outcome.REJECTED)
    assert commit.action.reason is AbandonReason.CONFLICTS
    assert plans == CONFLICTS_MAX


def test_commit_is_abandoned_if_the_table_cannot_be_loaded(commit: SnapshotCommit) -> None:
    for _ in range(FAILURES_MAX):
        assert commit.action == Reload()
        commit.reload_failed()
    assert commit.action == Abandoned(AbandonReason.FAILURES)


def test_commit_is_abandoned_if_the_table_was_created_again(commit: SnapshotCommit) -> None:
    send(commit)
    commit.responded(Outcome.UNKNOWN)
    commit.reloaded(replace(HEAD, table_uuid="another"))
    assert commit.action == Abandoned(AbandonReason.REPLACED)


def test_result_of_another_step_is_rejected(commit: SnapshotCommit) -> None:
    with pytest.raises(InvariantError):
        commit.responded(Outcome.ACCEPTED)


# Stored offsets

OLDER, NEWER = LandedOffsets({0: 5}), LandedOffsets({0: 9, 1: 0}, {"late": 2})


def ancestors(*summaries: Mapping[str, str]) -> list[Ancestor]:
    """Return snapshots, newest first, with descending sequence numbers from 9 on."""
    return [Ancestor(9 - index, summary) for index, summary in enumerate(summaries)]


def test_offsets_of_the_newest_snapshot_count() -> None:
    found = read_stored_offsets(ancestors({}, NEWER.encode(), OLDER.encode()), encode_properties(NEWER, 8))
    assert found.of_rows == NEWER
    assert not found.is_rolled_back


def test_property_counts_if_the_snapshots_with_offsets_have_expired() -> None:
    found = read_stored_offsets(ancestors({"operation": "replace"}), encode_properties(NEWER, 8))
    assert found.of_rows == NEWER
    assert not found.is_rolled_back


def test_rollback_to_earlier_offsets_is_detected() -> None:
    found = read_stored_offsets(ancestors(OLDER.encode()), encode_properties(NEWER, 10))
    assert found.is_rolled_back
    assert str(found.in_snapshot) == "{0: 5}"
    assert str(found.in_property) == "{0: 9, 1: 0, late: 2}"


def test_rollback_to_a_snapshot_older_than_the_last_commit_is_detected() -> None:
    found = read_stored_offsets(ancestors({}, {}), encode_properties(NEWER, 9))
    assert found.is_rolled_back


def test_new_table_has_no_offsets() -> None:
    assert read_stored_offsets([], {}).of_rows == LandedOffsets()


def test_damaged_offsets_are_an_error() -> None:
    with pytest.raises(OffsetsDamagedError, match="table properties"):
        read_stored_offsets([], {OFFSETS_KEY: "{"})


def test_advanced_offsets_keep_the_other_partitions() -> None:
    assert OLDER.advance({1: 3}).advance_sequence("late") == LandedOffsets({0: 5, 1: 3}, {"late": 1})
