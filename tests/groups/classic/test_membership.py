from __future__ import annotations

import pytest

from chronik.coordination.machine import TakenOver
from chronik.groups.classic.machine import ClassicGroup
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import EMPTINESS_RETRY_DELAY_MS, GroupConfig
from chronik.groups.requests import LeavingMember
from chronik.metadata.records import Group
from chronik.protocol.errors import ErrorCode

from .lab import SESSION_MS, Lab


def test_heartbeats_keep_session_alive() -> None:
    lab = Lab()
    (member,) = lab.stable(None)
    for _ in range(5):
        lab.pass_time(SESSION_MS - 1)
        assert lab.heartbeat(member) is ErrorCode.NONE


def test_member_is_removed_when_session_expires() -> None:
    lab = Lab()
    leader, silent = lab.stable(None, None)
    lab.pass_time(SESSION_MS - 1)
    lab.heartbeat(leader)
    assert lab.state() is GroupState.STABLE
    lab.pass_time(1)
    assert lab.state() is GroupState.PREPARING_REBALANCE
    assert lab.heartbeat(silent) is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.joined(lab.join(leader)).generation == 2


def test_heartbeat_with_wrong_generation_or_member_id_is_rejected() -> None:
    lab = Lab()
    (member,) = lab.stable(None)
    assert lab.heartbeat(member, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert lab.heartbeat("stranger") is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_before_assignment_succeeds() -> None:
    lab = Lab()
    assert lab.heartbeat(lab.first_member()) is ErrorCode.NONE


def test_last_leave_response_waits_until_empty_group_is_stored() -> None:
    lab = Lab()
    (member,) = lab.stable(None)
    lab.store_answers = False
    waiter = lab.leave(LeavingMember(member))
    assert lab.waits(waiter)
    lab.answer_store()
    left = lab.left(waiter)
    assert left.error is ErrorCode.NONE
    assert [(one.member_id, one.error) for one in left.members] == [(member, ErrorCode.NONE)]
    assert lab.state() is GroupState.EMPTY
    assert (lab.stored[-1].members, lab.stored[-1].generation, lab.stored[-1].protocol_type) == ((), 2, "consumer")


def test_failed_store_of_empty_group_is_retried() -> None:
    lab = Lab()
    (member,) = lab.stable(None)
    lab.store_answers = False
    waiter = lab.leave(LeavingMember(member))
    lab.answer_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert lab.left(waiter).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    lab.pass_time(EMPTINESS_RETRY_DELAY_MS)
    assert len(lab.unanswered_stores) == 1
    lab.answer_store()
    assert lab.stored[-1].members == ()


def test_remaining_members_rebalance_after_leave() -> None:
    lab = Lab()
    leader, second, third = lab.stable(None, None, None)
    left = lab.left(lab.leave(LeavingMember(leader), LeavingMember("stranger"), LeavingMember(third)))
    assert [one.error for one in left.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    joined = lab.joined(lab.join(second))
    assert (joined.generation, joined.leader) == (2, second)


def test_leave_of_unknown_member_changes_nothing() -> None:
    lab = Lab()
    lab.stable(None)
    lab.leave(LeavingMember("stranger"), LeavingMember(""))
    assert lab.state() is GroupState.STABLE


def test_pending_member_can_leave_without_rebalance() -> None:
    lab = Lab()
    lab.stable(None)
    given = lab.joined(lab.join(require_known_member_id=True)).member_id
    assert lab.left(lab.leave(LeavingMember(given))).members[0].error is ErrorCode.NONE
    assert lab.state() is GroupState.STABLE
    assert lab.joined(lab.join(given)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_does_not_wait_for_member_that_left() -> None:
    lab = Lab()
    leader, follower = lab.stable(None, None)
    rejoin = lab.join(leader)
    lab.leave(LeavingMember(follower))
    assert lab.joined(rejoin).generation == 2


def test_loaded_group_keeps_generation_and_restarts_sessions() -> None:
    before = Lab()
    leader, follower = before.stable("a", None)
    stored = before.stored[-1]
    record = Group(
        stored.group_id, "consumer", stored.generation, stored.protocol_name, stored.leader, "Stable", stored.members, 5
    )
    config = GroupConfig()
    lab = Lab(config, ClassicGroup.load(record, config, now_ms=1_000_000))
    assert lab.group.describe() == before.group.describe()
    lab.pass_time(SESSION_MS - 1)
    assert lab.heartbeat(leader, instance="a") is ErrorCode.NONE
    lab.pass_time(1)
    assert lab.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.joined(lab.join(leader, instance="a")).generation == 2


def test_only_empty_group_can_be_deleted() -> None:
    lab = Lab()
    (member,) = lab.stable(None)
    assert lab.error(lab.delete()) is ErrorCode.NON_EMPTY_GROUP
    lab.leave(LeavingMember(member))
    lab.store_answers = False
    waiter = lab.delete()
    assert lab.waits(waiter)
    assert not lab.forgotten
    lab.answer_store()
    assert lab.error(waiter) is ErrorCode.NONE
    assert lab.forgotten


def test_failed_deletion_keeps_group() -> None:
    lab = Lab()
    (member,) = lab.stable(None)
    lab.leave(LeavingMember(member))
    lab.store_answers = False
    waiter = lab.delete()
    lab.answer_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert lab.error(waiter) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not lab.forgotten
    assert lab.state() is GroupState.EMPTY


def test_join_during_deletion_keeps_group() -> None:
    lab = Lab()
    (member,) = lab.stable(None)
    lab.leave(LeavingMember(member))
    lab.store_answers = False
    deletion, join = lab.delete(), lab.join()
    lab.answer_store()
    assert lab.error(deletion) is ErrorCode.NONE
    lab.pass_time(0)
    assert lab.joined(join).error is ErrorCode.NONE
    assert not lab.forgotten


def test_coordinator_change_rejects_waiting_requests_with_not_coordinator() -> None:
    lab = Lab()
    leader, follower = lab.stable(None, None)
    lab.store_answers = False
    joins = [lab.join(leader), lab.join()]
    lab.feed(TakenOver(lab.now_ms))
    assert {lab.joined(waiter).error for waiter in joins} == {ErrorCode.NOT_COORDINATOR}
    assert lab.forgotten
    assert lab.heartbeat(follower) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert lab.group.wake_at_ms is None


@pytest.mark.parametrize("question", ["sync", "leave", "delete"])
def test_coordinator_change_rejects_requests_waiting_for_store(question: str) -> None:
    lab = Lab()
    member = lab.first_member()
    lab.store_answers = False
    if question == "sync":
        waiter = lab.sync(member)
    else:
        waiter = lab.leave(LeavingMember(member))
        if question == "delete":
            lab.answer_store()
            waiter = lab.delete()
    assert lab.waits(waiter)
    lab.feed(TakenOver(lab.now_ms))
    assert not lab.waits(waiter)
    lab.answer_stores()
    assert lab.state() is GroupState.DEAD


def test_describe_shows_assignments_only_in_stable_state() -> None:
    lab = Lab()
    leader, _ = lab.stable("a", None)
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
