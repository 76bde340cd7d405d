from __future__ import annotations

import pytest

from chronik.coordination.machine import CoordinatorChanged, StateDeleted
from chronik.errors import InvariantError
from chronik.groups import requests
from chronik.groups.classic.machine import ClassicGroup
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import COMMIT_BATCH_BYTES_MAX, EMPTY_GROUP_RETRY_DELAY_MS, GroupConfig
from chronik.groups.offsets import build_commit_commands, find_offset_metadata_error
from chronik.groups.requests import LeavingMember
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.metadata.records import Group
from chronik.protocol.errors import ErrorCode

from .group_harness import SESSION_MS, GroupHarness


def test_heartbeats_keep_session_alive() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    for _ in range(5):
        lab.advance_time(SESSION_MS - 1)
        assert lab.heartbeat(member) is ErrorCode.NONE


def test_member_is_removed_when_session_expires() -> None:
    lab = GroupHarness()
    leader, silent = lab.create_stable_group(None, None)
    lab.advance_time(SESSION_MS - 1)
    lab.heartbeat(leader)
    assert lab.state() is GroupState.STABLE
    lab.advance_time(1)
    assert lab.state() is GroupState.PREPARING_REBALANCE
    assert lab.heartbeat(silent) is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.join_result(lab.join(leader)).generation == 2


def test_heartbeat_with_wrong_generation_or_member_id_is_rejected() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    assert lab.heartbeat(member, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert lab.heartbeat("unknown") is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_before_assignment_succeeds() -> None:
    lab = GroupHarness()
    assert lab.heartbeat(lab.join_first_member()) is ErrorCode.NONE


def test_last_leave_response_waits_until_empty_group_is_stored() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    lab.store_answers = False
    waiter = lab.leave(LeavingMember(member))
    assert lab.is_waiting(waiter)
    lab.complete_store()
    left = lab.leave_result(waiter)
    assert left.error is ErrorCode.NONE
    assert [(one.member_id, one.error) for one in left.members] == [(member, ErrorCode.NONE)]
    assert lab.state() is GroupState.EMPTY
    assert (lab.stored[-1].members, lab.stored[-1].generation, lab.stored[-1].protocol_type) == ((), 2, "consumer")


def test_failed_store_of_empty_group_is_retried() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    lab.store_answers = False
    waiter = lab.leave(LeavingMember(member))
    lab.complete_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert lab.leave_result(waiter).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    lab.advance_time(EMPTY_GROUP_RETRY_DELAY_MS)
    assert len(lab.unanswered_stores) == 1
    lab.complete_store()
    assert lab.stored[-1].members == ()


def test_remaining_members_rebalance_after_leave() -> None:
    lab = GroupHarness()
    leader, second, third = lab.create_stable_group(None, None, None)
    left = lab.leave_result(lab.leave(LeavingMember(leader), LeavingMember("unknown"), LeavingMember(third)))
    assert [one.error for one in left.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    joined = lab.join_result(lab.join(second))
    assert (joined.generation, joined.leader) == (2, second)


def test_leave_of_unknown_member_changes_nothing() -> None:
    lab = GroupHarness()
    lab.create_stable_group(None)
    lab.leave(LeavingMember("unknown"), LeavingMember(""))
    assert lab.state() is GroupState.STABLE


def test_pending_member_can_leave_without_rebalance() -> None:
    lab = GroupHarness()
    lab.create_stable_group(None)
    given = lab.join_result(lab.join(require_known_member_id=True)).member_id
    assert lab.leave_result(lab.leave(LeavingMember(given))).members[0].error is ErrorCode.NONE
    assert lab.state() is GroupState.STABLE
    assert lab.join_result(lab.join(given)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_does_not_wait_for_member_that_left() -> None:
    lab = GroupHarness()
    leader, follower = lab.create_stable_group(None, None)
    rejoin = lab.join(leader)
    lab.leave(LeavingMember(follower))
    assert lab.join_result(rejoin).generation == 2


def test_loaded_group_keeps_generation_and_restarts_sessions() -> None:
    before = GroupHarness()
    leader, follower = before.create_stable_group("a", None)
    stored = before.stored[-1]
    record = Group(
        stored.group_id, "consumer", stored.generation, stored.protocol_name, stored.leader, "Stable", stored.members, 5
    )
    config = GroupConfig()
    lab = GroupHarness(config, ClassicGroup.load(record, config, now_ms=1_000_000))
    assert lab.group.describe() == before.group.describe()
    lab.advance_time(SESSION_MS - 1)
    assert lab.heartbeat(leader, instance="a") is ErrorCode.NONE
    lab.advance_time(1)
    assert lab.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.join_result(lab.join(leader, instance="a")).generation == 2


def test_only_empty_group_can_be_deleted() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    assert lab.error_code(lab.delete()) is ErrorCode.NON_EMPTY_GROUP
    lab.leave(LeavingMember(member))
    lab.store_answers = False
    waiter = lab.delete()
    assert lab.is_waiting(waiter)
    assert not lab.forgotten
    lab.complete_store()
    assert lab.error_code(waiter) is ErrorCode.NONE
    assert lab.forgotten


def test_failed_deletion_keeps_group() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    lab.leave(LeavingMember(member))
    lab.store_answers = False
    waiter = lab.delete()
    lab.complete_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert lab.error_code(waiter) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not lab.forgotten
    assert lab.state() is GroupState.EMPTY


def test_join_during_deletion_keeps_group() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    lab.leave(LeavingMember(member))
    lab.store_answers = False
    deletion, join = lab.delete(), lab.join()
    lab.complete_store()
    assert lab.error_code(deletion) is ErrorCode.NONE
    lab.advance_time(0)
    assert lab.join_result(join).error is ErrorCode.NONE
    assert not lab.forgotten


def test_coordinator_change_rejects_waiting_requests_with_not_coordinator() -> None:
    lab = GroupHarness()
    leader, follower = lab.create_stable_group(None, None)
    lab.store_answers = False
    joins = [lab.join(leader), lab.join()]
    lab.handle_event(CoordinatorChanged(lab.now_ms))
    assert {lab.join_result(waiter).error for waiter in joins} == {ErrorCode.NOT_COORDINATOR}
    assert lab.forgotten
    assert lab.heartbeat(follower) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert lab.group.wake_at_ms is None


@pytest.mark.parametrize("question", ["sync", "leave", "delete"])
def test_coordinator_change_rejects_requests_waiting_for_store(question: str) -> None:
    lab = GroupHarness()
    member = lab.join_first_member()
    lab.store_answers = False
    if question == "sync":
        waiter = lab.sync(member)
    else:
        waiter = lab.leave(LeavingMember(member))
        if question == "delete":
            lab.complete_store()
            waiter = lab.delete()
    assert lab.is_waiting(waiter)
    lab.handle_event(CoordinatorChanged(lab.now_ms))
    assert not lab.is_waiting(waiter)
    lab.complete_stores()
    assert lab.state() is GroupState.DEAD


def test_describe_shows_assignments_only_in_stable_state() -> None:
    lab = GroupHarness()
    leader, _ = lab.create_stable_group("a", None)
    described = lab.group.describe()
    assert (described.state, described.protocol_type, described.protocol_name) == ("Stable", "consumer", "range")
    first = described.members[0]
    assert (first.member_id, first.group_instance_id, first.client_id) == (leader, "a", "client")
    assert (first.client_host, first.metadata) == ("/127.0.0.1", b"range metadata")
    assert first.assignment == f"part of {leader}".encode()
    lab.join()
    described = lab.group.describe()
    assert (described.state, described.protocol_name) == ("PreparingRebalance", "")
    assert len(described.members) == 3
    assert {(member.metadata, member.assignment) for member in described.members} == {(b"", b"")}


def test_commit_is_accepted_only_in_members_generation() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    assert lab.commit(member, 1) is ErrorCode.NONE
    assert lab.commit(member, 0) is ErrorCode.ILLEGAL_GENERATION
    assert lab.commit(member, 2) is ErrorCode.ILLEGAL_GENERATION
    assert lab.commit("unknown", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.commit(member, -1) is ErrorCode.ILLEGAL_GENERATION


def test_commit_before_assignment_is_rejected() -> None:
    lab = GroupHarness()
    assert lab.commit(lab.join_first_member(), 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_commit_during_join_phase_is_accepted() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    lab.join()
    assert lab.state() is GroupState.PREPARING_REBALANCE
    assert lab.commit(member, 1) is ErrorCode.NONE


def test_commit_without_member_id_requires_empty_group() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    assert lab.commit() is ErrorCode.UNKNOWN_MEMBER_ID
    lab.leave(LeavingMember(member))
    assert lab.commit() is ErrorCode.NONE
    assert lab.commit(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_keeps_session_alive() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    for _ in range(3):
        lab.advance_time(SESSION_MS - 1)
        assert lab.commit(member, 1) is ErrorCode.NONE


def test_rejected_commit_does_not_keep_session_alive() -> None:
    lab = GroupHarness()
    (member,) = lab.create_stable_group(None)
    lab.advance_time(SESSION_MS - 1)
    assert lab.commit(member, generation=lab.group.generation - 1) is ErrorCode.ILLEGAL_GENERATION
    lab.advance_time(1)
    assert lab.state() is GroupState.EMPTY


def test_group_with_offsets_outlives_its_members() -> None:
    lab = GroupHarness()
    given = lab.join_result(lab.join(require_known_member_id=True)).member_id
    lab.handle_event(requests.OffsetsStored(lab.now_ms))
    lab.leave(LeavingMember(given))
    assert not lab.forgotten
    lab.handle_event(StateDeleted(lab.now_ms))
    assert lab.forgotten


@pytest.mark.parametrize(
    ("offset", "error"),
    [
        (OffsetToCommit("t", 0, 5, -1, None), ErrorCode.NONE),
        (OffsetToCommit("t", 0, 5, -1, "m" * 4096), ErrorCode.NONE),
        (OffsetToCommit("t", 0, 5, -1, "m" * 4097), ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_offset_with_oversized_metadata_is_rejected(offset: OffsetToCommit, error: ErrorCode) -> None:
    assert find_offset_metadata_error(offset, GroupConfig()) is error


def test_large_commit_is_split_into_commands_of_bounded_size() -> None:
    offsets = tuple(OffsetToCommit("topic", partition, partition, 0, "m" * 4096) for partition in range(1_000))
    commands = list(build_commit_commands("orders", offsets, now_ms=7))
    assert len(commands) > 1
    assert [offset for command, _ in commands for offset in command.offsets] == list(offsets)
    assert all(size_bytes <= COMMIT_BATCH_BYTES_MAX for _, size_bytes in commands)
    assert {command.commit_time_ms for command, _ in commands} == {7}


@pytest.mark.parametrize(("retention_ms", "expires_ms"), [(-1, -1), (0, 7), (100, 107), (2**63 - 1, 2**63 - 1)])
def test_client_retention_time_becomes_expire_timestamp(retention_ms: int, expires_ms: int) -> None:
    ((command, _),) = build_commit_commands("orders", [OffsetToCommit("t", 0, 1)], 7, retention_ms)
    assert command.expire_time_ms == expires_ms


@pytest.mark.parametrize("offset", [OffsetToCommit("t", -1, 5), OffsetToCommit("t", 0, 5, -7)])
def test_commit_with_invalid_partition_violates_invariant(offset: OffsetToCommit) -> None:
    with pytest.raises(InvariantError):
        list(build_commit_commands("orders", [offset], now_ms=7))
