from __future__ import annotations

import pytest

from chronik.groups.classic.members import estimate_protocols_size
from chronik.groups.classic.rebalance import find_join_request_error
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import MEMBER_BYTES_MAX, PENDING_MEMBERS_MAX, GroupConfig
from chronik.groups.requests import JoinRequest, LeavingMember, MemberProtocols
from chronik.protocol.errors import ErrorCode

from .group_harness import BOTH, RANGE, REBALANCE_MS, ROUND_ROBIN, SESSION_MS, GroupHarness


def request(group_id: str = "orders", session_ms: int = SESSION_MS, protocols: MemberProtocols = RANGE) -> JoinRequest:
    return JoinRequest(group_id, "", None, "client", "/::1", session_ms, REBALANCE_MS, "consumer", protocols)


def test_single_member_becomes_leader_with_member_list() -> None:
    lab = GroupHarness()
    waiter = lab.join()
    assert lab.is_waiting(waiter)
    lab.advance_time(0)
    joined = lab.join_result(waiter)
    assert (joined.error, joined.generation, joined.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert joined.leader == joined.member_id
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, b"range metadata")]
    assert lab.state() is GroupState.COMPLETING_REBALANCE


def test_only_leader_receives_member_list() -> None:
    lab = GroupHarness()
    first, second = lab.join(), lab.join()
    lab.advance_time(0)
    lab.advance_time(0)
    leader, follower = lab.join_result(first), lab.join_result(second)
    assert leader.generation == follower.generation == 1
    assert leader.leader == follower.leader == leader.member_id
    assert {member.member_id for member in leader.members} == {leader.member_id, follower.member_id}
    assert follower.members == ()


def test_join_returns_member_id_required_for_new_member() -> None:
    lab = GroupHarness()
    required = lab.join_result(lab.join(require_known_member_id=True))
    assert required.error is ErrorCode.MEMBER_ID_REQUIRED
    assert required.member_id.startswith("client-")
    assert lab.state() is GroupState.EMPTY
    waiter = lab.join(required.member_id, require_known_member_id=True)
    lab.advance_time(0)
    assert lab.join_result(waiter).member_id == required.member_id


def test_join_with_unknown_member_id_is_rejected() -> None:
    lab = GroupHarness()
    lab.join_first_member()
    assert lab.join_result(lab.join("client-guessed")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_pending_member_id_expires_and_unused_group_is_unloaded() -> None:
    lab = GroupHarness()
    lab.join_result(lab.join(require_known_member_id=True))
    lab.advance_time(SESSION_MS - 1)
    assert not lab.forgotten
    lab.advance_time(1)
    assert lab.forgotten
    assert lab.state() is GroupState.DEAD


def test_rebalance_waits_for_pending_member_ids_until_they_expire() -> None:
    lab = GroupHarness()
    (leader,) = lab.create_stable_group(None)
    lab.join(require_known_member_id=True)
    rejoin = lab.join(leader)
    assert lab.is_waiting(rejoin)
    lab.advance_time(SESSION_MS)
    assert lab.join_result(rejoin).generation == 2


def test_rebalance_waits_for_all_members_of_previous_generation() -> None:
    lab = GroupHarness()
    leader, follower = lab.create_stable_group(None, None)
    newcomer = lab.join()
    assert lab.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    again = lab.join(leader)
    assert lab.is_waiting(newcomer)
    assert lab.is_waiting(again)
    last = lab.join(follower)
    assert {lab.join_result(waiter).generation for waiter in (newcomer, again, last)} == {2}


def test_member_that_does_not_rejoin_in_time_is_removed() -> None:
    lab = GroupHarness()
    leader, follower = lab.create_stable_group(None, None)
    rejoin = lab.join(follower, protocols=BOTH)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        lab.advance_time(5_000)
        assert lab.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert lab.is_waiting(rejoin)
    lab.advance_time(5_000)
    joined = lab.join_result(rejoin)
    assert joined.generation == 2
    assert joined.leader == follower
    assert lab.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID


def test_longest_rebalance_timeout_of_members_applies() -> None:
    lab = GroupHarness()
    first = lab.join(rebalance_ms=1_000, session_ms=1_000_000)
    second = lab.join(rebalance_ms=5_000, session_ms=1_000_000)
    lab.advance_time(0)
    lab.advance_time(0)
    lab.sync(lab.join_result(first).member_id)
    lab.sync(lab.join_result(second).member_id)
    newcomer = lab.join(rebalance_ms=1_000)
    lab.advance_time(4_999)
    assert lab.is_waiting(newcomer)
    lab.advance_time(1)
    assert lab.join_result(newcomer).generation == 2


def test_initial_delay_is_extended_while_members_join() -> None:
    lab = GroupHarness(GroupConfig(initial_rebalance_delay_ms=3_000))
    first = lab.join(rebalance_ms=10_000)
    lab.advance_time(2_000)
    second = lab.join(rebalance_ms=10_000)
    lab.advance_time(1_000)
    assert lab.is_waiting(first), "a new member restarts the delay"
    lab.advance_time(2_999)
    assert lab.is_waiting(first)
    lab.advance_time(1)
    assert lab.join_result(first).generation == lab.join_result(second).generation == 1


def test_initial_delay_never_exceeds_rebalance_timeout() -> None:
    lab = GroupHarness(GroupConfig(initial_rebalance_delay_ms=3_000))
    first = lab.join(rebalance_ms=7_000)
    waited_ms = 0
    while lab.is_waiting(first):
        lab.join(rebalance_ms=7_000)
        lab.advance_time(500)
        waited_ms += 500
        assert waited_ms <= 10_000
    assert lab.join_result(first).generation == 1


def test_group_becomes_empty_when_all_leave_during_initial_delay() -> None:
    lab = GroupHarness(GroupConfig(initial_rebalance_delay_ms=3_000))
    given = lab.join_result(lab.join(require_known_member_id=True)).member_id
    waiter = lab.join(given)
    lab.leave(LeavingMember(given))
    assert lab.join_result(waiter).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.state() is GroupState.EMPTY


def test_common_protocol_with_most_votes_is_selected() -> None:
    lab = GroupHarness()
    sticky: MemberProtocols = (("sticky", b"s"),)
    waiters = [
        lab.join(protocols=(*sticky, *RANGE, *ROUND_ROBIN)),
        lab.join(protocols=(*ROUND_ROBIN, *RANGE)),
        lab.join(protocols=(*ROUND_ROBIN, *RANGE)),
    ]
    lab.advance_time(0)
    lab.advance_time(0)
    assert {lab.join_result(waiter).protocol_name for waiter in waiters} == {"roundrobin"}
    assert {member.metadata for member in lab.join_result(waiters[0]).members} == {b"roundrobin metadata"}


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", RANGE), ("consumer", ROUND_ROBIN), ("consumer", ())],
    ids=["different protocol type", "no common protocol", "no protocol"],
)
def test_join_with_inconsistent_protocols_is_rejected(protocol_type: str, protocols: MemberProtocols) -> None:
    lab = GroupHarness()
    lab.create_stable_group(None)
    refused = lab.join_result(lab.join(protocol_type=protocol_type, protocols=protocols))
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert lab.state() is GroupState.STABLE


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_first_member_without_protocol_is_rejected(protocol_type: str, protocols: MemberProtocols) -> None:
    lab = GroupHarness()
    refused = lab.join_result(lab.join(protocol_type=protocol_type, protocols=protocols))
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert lab.forgotten


def test_duplicate_protocol_name_counts_once() -> None:
    lab = GroupHarness()
    lab.create_stable_group(None, protocols=(*RANGE, *RANGE))
    assert lab.join_result(lab.join(protocols=ROUND_ROBIN)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_follower_rejoin_with_same_metadata_does_not_rebalance() -> None:
    lab = GroupHarness()
    leader, follower = lab.create_stable_group(None, None)
    required = lab.join_result(lab.join(follower))
    assert (required.error, required.generation, required.leader, required.members) == (ErrorCode.NONE, 1, leader, ())
    assert lab.state() is GroupState.STABLE


def test_leader_rejoin_before_sync_returns_members_again() -> None:
    lab = GroupHarness()
    leader = lab.join_first_member()
    required = lab.join_result(lab.join(leader))
    assert required.generation == 1
    assert [member.member_id for member in required.members] == [leader]
    assert lab.state() is GroupState.COMPLETING_REBALANCE


def test_leader_rejoin_in_stable_group_starts_rebalance() -> None:
    lab = GroupHarness()
    leader, follower = lab.create_stable_group(None, None)
    lab.join(leader)
    assert lab.state() is GroupState.PREPARING_REBALANCE
    assert lab.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("synced", [True, False], ids=["stable", "completing"])
def test_changed_subscription_starts_rebalance(synced: bool) -> None:
    lab = GroupHarness()
    if synced:
        _, follower = lab.create_stable_group(None, None)
    else:
        waiters = [lab.join(), lab.join()]
        lab.advance_time(0)
        lab.advance_time(0)
        follower = lab.join_result(waiters[1]).member_id
    waiter = lab.join(follower, protocols=(("range", b"another subscription"),))
    assert lab.state() is GroupState.PREPARING_REBALANCE
    assert lab.is_waiting(waiter)


def test_repeated_join_completes_previous_waiting_join() -> None:
    lab = GroupHarness()
    leader, follower = lab.create_stable_group(None, None)
    first = lab.join(leader)
    second = lab.join(leader)
    assert lab.join_result(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert lab.is_waiting(second)
    lab.join(follower)
    assert lab.join_result(second).generation == 2


def test_new_member_is_removed_after_join_timeout() -> None:
    lab = GroupHarness(GroupConfig(new_member_join_timeout_ms=20_000))
    (leader,) = lab.create_stable_group(None)
    waiter = lab.join(rebalance_ms=1_000_000)
    for _ in range(4):
        lab.advance_time(5_000)
        lab.heartbeat(leader)
    assert lab.join_result(waiter).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_full_group_rejects_new_members() -> None:
    lab = GroupHarness(GroupConfig(max_size=2))
    lab.create_stable_group(None, None)
    assert lab.join_result(lab.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert lab.state() is GroupState.STABLE


def test_rebalancing_group_accepts_members_up_to_max_size() -> None:
    lab = GroupHarness(GroupConfig(max_size=2, initial_rebalance_delay_ms=1_000))
    accepted = [lab.join(), lab.join()]
    assert lab.join_result(lab.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    lab.advance_time(2_000)
    lab.advance_time(2_000)
    assert {lab.join_result(waiter).error for waiter in accepted} == {ErrorCode.NONE}


def test_static_member_can_restart_in_full_group() -> None:
    lab = GroupHarness(GroupConfig(max_size=2))
    lab.create_stable_group("a", "b")
    assert lab.join_result(lab.join(instance="a")).error is ErrorCode.NONE


def test_pending_member_ids_are_limited() -> None:
    lab = GroupHarness()
    for _ in range(PENDING_MEMBERS_MAX - 1):
        lab.group.members.pending_member_ids.add(f"pending-{lab.new_waiter()}")
    assert lab.join_result(lab.join(require_known_member_id=True)).error is ErrorCode.MEMBER_ID_REQUIRED
    assert lab.join_result(lab.join(require_known_member_id=True)).error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_invalid_join_requests_are_rejected() -> None:
    config = GroupConfig(min_session_timeout_ms=6_000, max_session_timeout_ms=30_000)
    assert find_join_request_error(request(group_id=""), config) is ErrorCode.INVALID_GROUP_ID
    for session_ms, refusal in [
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, None),
        (30_000, None),
        (30_001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ]:
        assert find_join_request_error(request(session_ms=session_ms), config) is refusal
    largest: MemberProtocols = (("range", bytes(MEMBER_BYTES_MAX - estimate_protocols_size((("range", b""),)))),)
    assert find_join_request_error(request(protocols=largest), config) is None
    assert find_join_request_error(request(protocols=(*largest, ("x", b"1"))), config) is ErrorCode.INVALID_REQUEST
