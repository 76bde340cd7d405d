from __future__ import annotations

import pytest

from chronik.groups.classic.group_state import GroupSnapshot
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import MEMBER_ID_CHECK_DELAY_MS
from chronik.groups.requests import LeavingMember
from chronik.protocol.errors import ErrorCode

from .group_harness import BOTH, REBALANCE_MS, ROUND_ROBIN, SESSION_MS, GroupHarness


def test_restarted_static_member_gets_new_id_and_keeps_assignment() -> None:
    lab = GroupHarness()
    leader, old = lab.create_stable_group("a", "b")
    joined = lab.join_result(lab.join(instance="b"))
    assert joined.error is ErrorCode.NONE
    assert joined.member_id.startswith("b-")
    assert joined.member_id != old
    assert (joined.generation, joined.leader, joined.skip_assignment) == (1, leader, False)
    assert lab.state() is GroupState.STABLE
    assert lab.sync_result(lab.sync(joined.member_id, instance="b")).assignment == f"part of {old}".encode()
    assert {member.member_id for member in lab.stored[-1].members} == {leader, joined.member_id}


def test_restarted_static_member_join_waits_until_new_id_is_stored() -> None:
    lab = GroupHarness()
    lab.create_stable_group("a", "b")
    lab.store_answers = False
    waiter = lab.join(instance="b")
    assert lab.is_waiting(waiter)
    lab.complete_store()
    assert lab.join_result(waiter).error is ErrorCode.NONE


def test_restarted_static_member_join_fails_when_store_fails() -> None:
    lab = GroupHarness()
    lab.create_stable_group("a", "b")
    lab.store_answers = False
    waiter = lab.join(instance="b")
    lab.complete_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    refused = lab.join_result(waiter)
    assert (refused.error, refused.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    lab.store_answers = True
    assert lab.join_result(lab.join(instance="b")).error is ErrorCode.NONE


def test_restarted_leader_receives_skip_assignment() -> None:
    lab = GroupHarness()
    _, follower = lab.create_stable_group("a", "b")
    joined = lab.join_result(lab.join(instance="a"))
    assert joined.leader == joined.member_id
    assert joined.skip_assignment
    assert {member.member_id for member in joined.members} == {joined.member_id, follower}


def test_restarted_leader_with_old_client_acts_as_follower() -> None:
    lab = GroupHarness()
    old, _ = lab.create_stable_group("a", "b")
    joined = lab.join_result(lab.join(instance="a", supports_skip_assignment=False))
    assert joined.leader == old
    assert joined.members == ()
    assert not joined.skip_assignment
    assert lab.group.members.leader == joined.member_id


def test_requests_with_old_member_id_are_fenced() -> None:
    lab = GroupHarness()
    _, old = lab.create_stable_group("a", "b")
    lab.join(instance="b")
    assert lab.heartbeat(old, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert lab.commit(old, 1, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert lab.sync_result(lab.sync(old, instance="b")).error is ErrorCode.FENCED_INSTANCE_ID
    assert lab.join_result(lab.join(old, instance="b")).error is ErrorCode.FENCED_INSTANCE_ID
    assert lab.leave_result(lab.leave(LeavingMember(old, "b"))).members[0].error is ErrorCode.FENCED_INSTANCE_ID
    assert lab.heartbeat(old) is ErrorCode.UNKNOWN_MEMBER_ID


def test_join_waiting_under_old_member_id_is_fenced() -> None:
    lab = GroupHarness()
    lab.create_stable_group("a", "b")
    lab.join()
    waiting = lab.join(instance="b")
    assert lab.is_waiting(waiting)
    restarted = lab.join(instance="b")
    assert lab.join_result(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    assert lab.is_waiting(restarted)


def test_sync_waiting_under_old_member_id_is_fenced_and_group_rebalances() -> None:
    lab = GroupHarness()
    waiters = [lab.join(instance="a"), lab.join(instance="b")]
    lab.advance_time(0)
    lab.advance_time(0)
    leader, old = (lab.join_result(waiter).member_id for waiter in waiters)
    waiting = lab.sync(old, instance="b")
    restarted = lab.join(instance="b")
    assert lab.sync_result(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    assert lab.state() is GroupState.PREPARING_REBALANCE
    lab.join(leader, instance="a")
    assert lab.join_result(restarted).generation == 2


def test_static_restart_with_changed_protocol_starts_rebalance() -> None:
    lab = GroupHarness()
    lab.create_stable_group("a", protocols=BOTH)
    waiter = lab.join(instance="a", protocols=ROUND_ROBIN)
    joined = lab.join_result(waiter)
    assert (joined.generation, joined.protocol_name) == (2, "roundrobin")


def test_rebalance_during_id_store_completes_static_join() -> None:
    lab = GroupHarness()
    (old,) = lab.create_stable_group("a")
    lab.store_answers = False
    restarted = lab.join(instance="a")
    newcomer = lab.join()
    lab.complete_stores()
    joined = lab.join_result(restarted)
    assert joined.generation == lab.join_result(newcomer).generation == 2
    assert joined.member_id != old


def test_absent_static_member_survives_rebalance_until_session_expires() -> None:
    lab = GroupHarness()
    leader, absent = lab.create_stable_group("a", "b")
    lab.advance_time(SESSION_MS - 1)
    lab.heartbeat(leader, instance="a")
    rejoin = lab.join(leader, instance="a")
    assert lab.is_waiting(rejoin)
    lab.advance_time(1)
    assert [member.member_id for member in lab.join_result(rejoin).members] == [leader]
    assert lab.heartbeat(absent, instance="b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_waits_when_only_absent_static_members_remain() -> None:
    lab = GroupHarness()
    waiter = lab.join(instance="a", session_ms=1_000_000)
    lab.advance_time(0)
    static = lab.join_result(waiter).member_id
    lab.sync(static)
    dynamic = lab.join_result(lab.join(require_known_member_id=True)).member_id
    lab.join(dynamic)
    lab.leave(LeavingMember(dynamic))
    assert lab.state() is GroupState.PREPARING_REBALANCE
    lab.advance_time(REBALANCE_MS)
    assert lab.state() is GroupState.PREPARING_REBALANCE
    rejoin = lab.join(static, instance="a")
    assert lab.join_result(rejoin).generation == 2


def test_static_member_can_be_removed_by_instance_id() -> None:
    lab = GroupHarness()
    leader, removed = lab.create_stable_group("a", "b")
    left = lab.leave_result(lab.leave(LeavingMember("", "b"), LeavingMember("", "unknown")))
    assert [member.error for member in left.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert lab.state() is GroupState.PREPARING_REBALANCE
    assert lab.heartbeat(removed, instance="b") is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.heartbeat(leader, instance="a") is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("instance", ["unknown", "b"])
def test_member_id_of_other_instance_is_fenced(instance: str) -> None:
    lab = GroupHarness()
    leader, _ = lab.create_stable_group("a", "b")
    expected = ErrorCode.FENCED_INSTANCE_ID if instance == "b" else ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.heartbeat(leader, instance=instance) is expected


def test_pending_dynamic_member_id_is_rejected_for_static_member() -> None:
    lab = GroupHarness()
    lab.create_stable_group(None)
    given = lab.join_result(lab.join(require_known_member_id=True)).member_id
    assert lab.join_result(lab.join(given, instance="a")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_restart_during_rebalance_waits_for_rebalance() -> None:
    lab = GroupHarness()
    (leader,) = lab.create_stable_group(None)
    lab.join(instance="a")
    restarted = lab.join(instance="a")
    for _ in range(3):
        lab.advance_time(SESSION_MS - 1)
        lab.heartbeat(leader)
    assert lab.is_waiting(restarted)
    lab.join(leader)
    assert lab.join_result(restarted).generation == 2


def test_static_restart_during_rebalance_is_stored_before_completion() -> None:
    """Otherwise the next coordinator would only know the old member id and fence the running process."""
    lab = GroupHarness()
    leader, old = lab.create_stable_group("a", "b")
    newcomer = lab.join()
    lab.store_answers = False
    restarted, rejoined = lab.join(instance="b"), lab.join(leader, instance="a")
    assert lab.group.state is GroupState.PREPARING_REBALANCE
    (sent,) = lab.unanswered_stores
    assert isinstance(sent.change, GroupSnapshot)
    assert sent.change.generation == 1
    assert {member.member_id for member in sent.change.members} > {leader}
    assert old not in {member.member_id for member in sent.change.members}
    lab.advance_time(REBALANCE_MS)
    assert lab.is_waiting(newcomer)
    assert lab.is_waiting(restarted)
    lab.complete_store()
    assert lab.join_result(restarted).generation == 2
    assert [lab.join_result(waiter).error for waiter in (newcomer, restarted, rejoined)] == [ErrorCode.NONE] * 3
    ids = {member.group_instance_id: member.member_id for member in lab.stored[-1].members}
    assert ids == {"a": leader, "b": lab.join_result(restarted).member_id}


def test_failed_store_of_new_id_is_retried_before_rebalance_completes() -> None:
    lab = GroupHarness()
    leader, _ = lab.create_stable_group("a", "b")
    lab.join()
    lab.store_answers = False
    restarted = lab.join(instance="b")
    lab.join(leader, instance="a")
    lab.complete_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert lab.is_waiting(restarted)
    lab.advance_time(MEMBER_ID_CHECK_DELAY_MS)
    assert lab.is_waiting(restarted)
    lab.complete_store()
    assert (lab.join_result(restarted).error, lab.join_result(restarted).generation) == (ErrorCode.NONE, 2)
    ids = {member.group_instance_id: member.member_id for member in lab.stored[-1].members}
    assert ids == {"a": leader, "b": lab.join_result(restarted).member_id}


def test_static_restart_before_rebalance_is_stored_before_completion() -> None:
    lab = GroupHarness()
    leader, _ = lab.create_stable_group("a", "b")
    lab.store_answers = False
    restarted = lab.join(instance="b")
    newcomer = lab.join()
    lab.join(leader, instance="a")
    assert lab.is_waiting(newcomer)
    lab.complete_store()
    lab.advance_time(MEMBER_ID_CHECK_DELAY_MS)
    assert [lab.join_result(waiter).generation for waiter in (restarted, newcomer)] == [2, 2]


def test_instance_that_leaves_and_rejoins_is_stored_with_new_id() -> None:
    lab = GroupHarness()
    leader, old = lab.create_stable_group("a", "b")
    lab.leave(LeavingMember(old, "b"))
    assert lab.group.state is GroupState.PREPARING_REBALANCE
    lab.join(instance="b")
    stored = {member.group_instance_id: member.member_id for member in lab.stored[-1].members}
    assert stored["a"] == leader
    assert stored["b"] != old
    assert lab.stored[-1].generation == 1


def test_static_member_of_empty_group_joins_after_old_id_is_removed() -> None:
    lab = GroupHarness()
    (old,) = lab.create_stable_group("a")
    lab.store_answers = False
    lab.leave(LeavingMember(old, "a"))
    waiter = lab.join(instance="a")
    lab.advance_time(REBALANCE_MS)
    assert lab.is_waiting(waiter)
    lab.complete_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    lab.advance_time(REBALANCE_MS)
    assert lab.is_waiting(waiter)
    (again,) = lab.unanswered_stores
    assert isinstance(again.change, GroupSnapshot)
    assert again.change.members == ()
    lab.complete_store()
    lab.advance_time(REBALANCE_MS)
    assert lab.join_result(waiter).error is ErrorCode.NONE
