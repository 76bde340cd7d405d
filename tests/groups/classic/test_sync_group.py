from __future__ import annotations

import pytest

from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import GROUP_BYTES_MAX, SYNC_TIMEOUT_MS_MIN
from chronik.groups.requests import LeavingMember
from chronik.protocol.errors import ErrorCode

from .group_harness import RANGE, REBALANCE_MS, SESSION_MS, GroupHarness


def two_members(lab: GroupHarness) -> tuple[str, str]:
    waiters = [lab.join(), lab.join()]
    lab.advance_time(0)
    lab.advance_time(0)
    leader, follower = (lab.join_result(waiter).member_id for waiter in waiters)
    return leader, follower


def test_assignment_is_stored_before_members_receive_it() -> None:
    lab = GroupHarness()
    leader, follower = two_members(lab)
    lab.store_answers = False
    waiting = [lab.sync(follower), lab.sync(leader, assignments={leader: b"0,1", follower: b"2"})]
    assert all(lab.is_waiting(waiter) for waiter in waiting)
    assert lab.state() is GroupState.COMPLETING_REBALANCE
    lab.complete_store()
    assert [lab.sync_result(waiter).assignment for waiter in waiting] == [b"2", b"0,1"]
    assert lab.state() is GroupState.STABLE
    stored = lab.stored[-1]
    assert (stored.generation, stored.leader, stored.protocol_name) == (1, leader, "range")
    assert {member.member_id: member.assignment for member in stored.members} == {leader: b"0,1", follower: b"2"}


def test_member_omitted_by_leader_gets_empty_assignment() -> None:
    lab = GroupHarness()
    leader, follower = two_members(lab)
    lab.sync(leader, assignments={leader: b"all", "unknown": b"ignored"})
    synced = lab.sync_result(lab.sync(follower))
    assert (synced.error, synced.assignment, synced.protocol_name) == (ErrorCode.NONE, b"", "range")


def test_large_assignment_is_delivered_completely() -> None:
    lab = GroupHarness()
    leader, follower = two_members(lab)
    metadata_bytes = sum(len(metadata) for _, metadata in RANGE) * 2
    largest = bytes(range(256)) * ((GROUP_BYTES_MAX - metadata_bytes) // 256)
    lab.sync(leader, assignments={follower: largest})
    assert lab.sync_result(lab.sync(follower)).assignment == largest


def test_oversized_assignment_is_rejected() -> None:
    lab = GroupHarness()
    leader, follower = two_members(lab)
    rejected = lab.sync_result(lab.sync(leader, assignments={follower: bytes(GROUP_BYTES_MAX)}))
    assert rejected.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert lab.state() is GroupState.COMPLETING_REBALANCE


def test_failed_assignment_store_starts_new_rebalance() -> None:
    lab = GroupHarness()
    leader, follower = two_members(lab)
    lab.store_answers = False
    waiting = [lab.sync(follower), lab.sync(leader, assignments={leader: b"all"})]
    lab.complete_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert {lab.sync_result(waiter).error for waiter in waiting} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert lab.state() is GroupState.PREPARING_REBALANCE
    assert lab.stored == []


@pytest.mark.parametrize("error", [None, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_late_stored_assignment_does_not_affect_next_generation(error: ErrorCode | None) -> None:
    lab = GroupHarness()
    leader, follower = two_members(lab)
    lab.store_answers = False
    waiting = lab.sync(leader, assignments={leader: b"old"})
    newcomer = lab.join()
    assert lab.sync_result(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    lab.complete_store(error)
    assert lab.state() is GroupState.PREPARING_REBALANCE
    lab.join(leader)
    lab.join(follower)
    assert lab.join_result(newcomer).generation == 2
    assert lab.is_waiting(lab.sync(follower, generation=2)), "the old assignment must not be delivered"


def test_repeated_leader_sync_stores_assignment_once() -> None:
    lab = GroupHarness()
    leader, _ = two_members(lab)
    lab.store_answers = False
    first = lab.sync(leader, assignments={leader: b"all"})
    second = lab.sync(leader, assignments={leader: b"all"})
    assert lab.sync_result(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(lab.unanswered_stores) == 1
    lab.complete_store()
    assert lab.sync_result(second).assignment == b"all"


def test_sync_in_stable_group_returns_immediately() -> None:
    lab = GroupHarness()
    _, follower = lab.create_stable_group(None, None)
    assert lab.sync_result(lab.sync(follower)).assignment == f"part of {follower}".encode()


def test_sync_during_join_phase_returns_rebalance_in_progress() -> None:
    lab = GroupHarness()
    _, follower = lab.create_stable_group(None, None)
    lab.join()
    assert lab.sync_result(lab.sync(follower)).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_sync_with_wrong_generation_or_member_id_is_rejected() -> None:
    lab = GroupHarness()
    (leader,) = lab.create_stable_group(None)
    assert lab.sync_result(lab.sync(leader, generation=0)).error is ErrorCode.ILLEGAL_GENERATION
    assert lab.sync_result(lab.sync(leader, generation=2)).error is ErrorCode.ILLEGAL_GENERATION
    assert lab.sync_result(lab.sync("unknown")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_with_different_protocol_is_rejected() -> None:
    lab = GroupHarness()
    (leader,) = lab.create_stable_group(None)
    accepted = lab.sync_result(lab.sync(leader, protocol_type="consumer", protocol_name="range"))
    assert accepted.error is ErrorCode.NONE
    for names in ({"protocol_type": "connect"}, {"protocol_name": "roundrobin"}):
        rejected = lab.sync_result(lab.sync(leader, **names))  # type: ignore[arg-type]
        assert rejected.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("leader_synced", [True, False])
def test_members_without_sync_are_removed_after_rebalance_timeout(leader_synced: bool) -> None:
    lab = GroupHarness()
    leader, follower = two_members(lab)
    present, absent = (leader, follower) if leader_synced else (follower, leader)
    waiter = lab.sync(present, assignments={leader: b"all"})
    for _ in range(REBALANCE_MS // 5_000):
        lab.advance_time(5_000)
        lab.heartbeat(leader)
        lab.heartbeat(follower)
    assert lab.state() is GroupState.PREPARING_REBALANCE
    assert lab.heartbeat(absent) is ErrorCode.UNKNOWN_MEMBER_ID
    if not leader_synced:
        assert lab.sync_result(waiter).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert lab.join_result(lab.join(present)).generation == 2


@pytest.mark.parametrize("is_in_time", [True, False])
def test_member_with_zero_rebalance_timeout_gets_minimum_sync_timeout(is_in_time: bool) -> None:
    lab = GroupHarness()
    joining = lab.join(rebalance_ms=0)
    lab.advance_time(0)
    member = lab.join_result(joining).member_id
    lab.advance_time(SYNC_TIMEOUT_MS_MIN - is_in_time)
    synced = lab.sync_result(lab.sync(member, assignments={member: b"all"}))
    assert synced.error is (ErrorCode.NONE if is_in_time else ErrorCode.UNKNOWN_MEMBER_ID)


def test_leaving_member_gets_response_to_waiting_sync() -> None:
    lab = GroupHarness()
    leader, follower = two_members(lab)
    waiter = lab.sync(follower)
    lab.leave(LeavingMember(follower))
    assert lab.sync_result(waiter).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.join_result(lab.join(leader)).generation == 2


def test_session_does_not_expire_while_sync_is_waiting() -> None:
    lab = GroupHarness()
    leader, follower = two_members(lab)
    waiter = lab.sync(follower)
    lab.advance_time(SESSION_MS - 1)
    lab.heartbeat(leader)
    lab.advance_time(1)
    assert lab.state() is GroupState.COMPLETING_REBALANCE
    lab.sync(leader, assignments={follower: b"all"})
    assert lab.sync_result(waiter).assignment == b"all"
    lab.advance_time(SESSION_MS - 1)
    assert lab.heartbeat(follower) is ErrorCode.NONE, "the session restarts with the SyncGroup response"
