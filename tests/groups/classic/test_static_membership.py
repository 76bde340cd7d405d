from __future__ import annotations

import pytest

from chronik.groups.classic.core import StoredGroup
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import NEW_ID_DELAY_MS
from chronik.groups.requests import LeavingMember
from chronik.protocol.errors import ErrorCode

from .lab import BOTH, REBALANCE_MS, ROUND_ROBIN, SESSION_MS, Lab


def test_restarted_static_member_gets_new_id_and_keeps_assignment() -> None:
    lab = Lab()
    leader, old = lab.stable("a", "b")
    joined = lab.joined(lab.join(instance="b"))
    assert joined.error is ErrorCode.NONE
    assert joined.member_id.startswith("b-")
    assert joined.member_id != old
    assert (joined.generation, joined.leader, joined.skip_assignment) == (1, leader, False)
    assert lab.state() is GroupState.STABLE
    assert lab.synced(lab.sync(joined.member_id, instance="b")).assignment == f"part of {old}".encode()
    assert {member.member_id for member in lab.stored[-1].members} == {leader, joined.member_id}


def test_restarted_static_member_join_waits_until_new_id_is_stored() -> None:
    lab = Lab()
    lab.stable("a", "b")
    lab.store_answers = False
    waiter = lab.join(instance="b")
    assert lab.waits(waiter)
    lab.answer_store()
    assert lab.joined(waiter).error is ErrorCode.NONE


def test_restarted_static_member_join_fails_when_store_fails() -> None:
    lab = Lab()
    lab.stable("a", "b")
    lab.store_answers = False
    waiter = lab.join(instance="b")
    lab.answer_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    refused = lab.joined(waiter)
    assert (refused.error, refused.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    lab.store_answers = True
    assert lab.joined(lab.join(instance="b")).error is ErrorCode.NONE


def test_restarted_leader_receives_skip_assignment() -> None:
    lab = Lab()
    _, follower = lab.stable("a", "b")
    joined = lab.joined(lab.join(instance="a"))
    assert joined.leader == joined.member_id
    assert joined.skip_assignment
    assert {member.member_id for member in joined.members} == {joined.member_id, follower}


def test_restarted_leader_with_old_client_acts_as_follower() -> None:
    lab = Lab()
    old, _ = lab.stable("a", "b")
    joined = lab.joined(lab.join(instance="a", supports_skip_assignment=False))
    assert joined.leader == old
    assert joined.members == ()
    assert not joined.skip_assignment
    assert lab.group.roster.leader == joined.member_id


def test_requests_with_old_member_id_are_fenced() -> None:
    lab = Lab()
    _, old = lab.stable("a", "b")
    lab.join(instance="b")
    assert lab.heartbeat(old, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert lab.commit(old, 1, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert lab.synced(lab.sync(old, instance="b")).error is ErrorCode.FENCED_INSTANCE_ID
    assert lab.joined(lab.join(old, instance="b")).error is ErrorCode.FENCED_INSTANCE_ID
    assert lab.left(lab.leave(LeavingMember(old, "b"))).members[0].error is ErrorCode.FENCED_INSTANCE_ID
    assert lab.heartbeat(old) is ErrorCode.UNKNOWN_MEMBER_ID


def test_join_waiting_under_old_member_id_is_fenced() -> None:
    lab = Lab()
    lab.stable("a", "b")
    lab.join()
    waiting = lab.join(instance="b")
    assert lab.waits(waiting)
    restarted = lab.join(instance="b")
    assert lab.joined(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    assert lab.waits(restarted)


def test_sync_waiting_under_old_member_id_is_fenced_and_group_rebalances() -> None:
    lab = Lab()
    waiters = [lab.join(instance="a"), lab.join(instance="b")]
    lab.pass_time(0)
    lab.pass_time(0)
    leader, old = (lab.joined(waiter).member_id for waiter in waiters)
    waiting = lab.sync(old, instance="b")
    restarted = lab.join(instance="b")
    assert lab.synced(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    assert lab.state() is GroupState.PREPARING_REBALANCE
    lab.join(leader, instance="a")
    assert lab.joined(restarted).generation == 2


def test_static_restart_with_changed_protocol_starts_rebalance() -> None:
    lab = Lab()
    lab.stable("a", protocols=BOTH)
    waiter = lab.join(instance="a", protocols=ROUND_ROBIN)
    joined = lab.joined(waiter)
    assert (joined.generation, joined.protocol_name) == (2, "roundrobin")


def test_rebalance_during_id_store_completes_static_join() -> None:
    lab = Lab()
    (old,) = lab.stable("a")
    lab.store_answers = False
    restarted = lab.join(instance="a")
    newcomer = lab.join()
    lab.answer_stores()
    joined = lab.joined(restarted)
    assert joined.generation == lab.joined(newcomer).generation == 2
    assert joined.member_id != old


def test_absent_static_member_survives_rebalance_until_session_expires() -> None:
    lab = Lab()
    leader, absent = lab.stable("a", "b")
    lab.pass_time(SESSION_MS - 1)
    lab.heartbeat(leader, instance="a")
    rejoin = lab.join(leader, instance="a")
    assert lab.waits(rejoin)
    lab.pass_time(1)
    assert [member.member_id for member in lab.joined(rejoin).members] == [leader]
    assert lab.heartbeat(absent, instance="b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_waits_when_only_absent_static_members_remain() -> None:
    lab = Lab()
    waiter = lab.join(instance="a", session_ms=1_000_000)
    lab.pass_time(0)
    static = lab.joined(waiter).member_id
    lab.sync(static)
    dynamic = lab.joined(lab.join(require_known_member_id=True)).member_id
    lab.join(dynamic)
    lab.leave(LeavingMember(dynamic))
    assert lab.state() is GroupState.PREPARING_REBALANCE
    lab.pass_time(REBALANCE_MS)
    assert lab.state() is GroupState.PREPARING_REBALANCE
    rejoin = lab.join(static, instance="a")
    assert lab.joined(rejoin).generation == 2


def test_static_member_can_be_removed_by_instance_id() -> None:
    lab = Lab()
    leader, removed = lab.stable("a", "b")
    left = lab.left(lab.leave(LeavingMember("", "b"), LeavingMember("", "unknown")))
    assert [member.error for member in left.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert lab.state() is GroupState.PREPARING_REBALANCE
    assert lab.heartbeat(removed, instance="b") is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.heartbeat(leader, instance="a") is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("instance", ["unknown", "b"])
def test_member_id_of_other_instance_is_fenced(instance: str) -> None:
    lab = Lab()
    leader, _ = lab.stable("a", "b")
    expected = ErrorCode.FENCED_INSTANCE_ID if instance == "b" else ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.heartbeat(leader, instance=instance) is expected


def test_pending_dynamic_member_id_is_rejected_for_static_member() -> None:
    lab = Lab()
    lab.stable(None)
    given = lab.joined(lab.join(require_known_member_id=True)).member_id
    assert lab.joined(lab.join(given, instance="a")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_restart_during_rebalance_waits_for_rebalance() -> None:
    lab = Lab()
    (leader,) = lab.stable(None)
    lab.join(instance="a")
    restarted = lab.join(instance="a")
    for _ in range(3):
        lab.pass_time(SESSION_MS - 1)
        lab.heartbeat(leader)
    assert lab.waits(restarted)
    lab.join(leader)
    assert lab.joined(restarted).generation == 2


def test_static_restart_during_rebalance_is_stored_before_completion() -> None:
    """Otherwise the next coordinator would only know the old member id and fence the running process."""
    lab = Lab()
    leader, old = lab.stable("a", "b")
    newcomer = lab.join()
    lab.store_answers = False
    restarted, rejoined = lab.join(instance="b"), lab.join(leader, instance="a")
    assert lab.group.state is GroupState.PREPARING_REBALANCE
    (sent,) = lab.unanswered_stores
    assert isinstance(sent.what, StoredGroup)
    assert sent.what.generation == 1
    assert {member.member_id for member in sent.what.members} > {leader}
    assert old not in {member.member_id for member in sent.what.members}
    lab.pass_time(REBALANCE_MS)
    assert lab.waits(newcomer)
    assert lab.waits(restarted)
    lab.answer_store()
    assert lab.joined(restarted).generation == 2
    assert [lab.joined(waiter).error for waiter in (newcomer, restarted, rejoined)] == [ErrorCode.NONE] * 3
    ids = {member.group_instance_id: member.member_id for member in lab.stored[-1].members}
    assert ids == {"a": leader, "b": lab.joined(restarted).member_id}


def test_failed_store_of_new_id_is_retried_before_rebalance_completes() -> None:
    lab = Lab()
    leader, _ = lab.stable("a", "b")
    lab.join()
    lab.store_answers = False
    restarted = lab.join(instance="b")
    lab.join(leader, instance="a")
    lab.answer_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert lab.waits(restarted)
    lab.pass_time(NEW_ID_DELAY_MS)
    assert lab.waits(restarted)
    lab.answer_store()
    assert (lab.joined(restarted).error, lab.joined(restarted).generation) == (ErrorCode.NONE, 2)
    ids = {member.group_instance_id: member.member_id for member in lab.stored[-1].members}
    assert ids == {"a": leader, "b": lab.joined(restarted).member_id}


def test_static_restart_before_rebalance_is_stored_before_completion() -> None:
    lab = Lab()
    leader, _ = lab.stable("a", "b")
    lab.store_answers = False
    restarted = lab.join(instance="b")
    newcomer = lab.join()
    lab.join(leader, instance="a")
    assert lab.waits(newcomer)
    lab.answer_store()
    lab.pass_time(NEW_ID_DELAY_MS)
    assert [lab.joined(waiter).generation for waiter in (restarted, newcomer)] == [2, 2]


def test_instance_that_leaves_and_rejoins_is_stored_with_new_id() -> None:
    lab = Lab()
    leader, old = lab.stable("a", "b")
    lab.leave(LeavingMember(old, "b"))
    assert lab.group.state is GroupState.PREPARING_REBALANCE
    lab.join(instance="b")
    stored = {member.group_instance_id: member.member_id for member in lab.stored[-1].members}
    assert stored["a"] == leader
    assert stored["b"] != old
    assert lab.stored[-1].generation == 1


def test_static_member_of_empty_group_joins_after_old_id_is_removed() -> None:
    lab = Lab()
    (old,) = lab.stable("a")
    lab.store_answers = False
    lab.leave(LeavingMember(old, "a"))
    waiter = lab.join(instance="a")
    lab.pass_time(REBALANCE_MS)
    assert lab.waits(waiter)
    lab.answer_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    lab.pass_time(REBALANCE_MS)
    assert lab.waits(waiter)
    (again,) = lab.unanswered_stores
    assert isinstance(again.what, StoredGroup)
    assert again.what.members == ()
    lab.answer_store()
    lab.pass_time(REBALANCE_MS)
    assert lab.joined(waiter).error is ErrorCode.NONE
