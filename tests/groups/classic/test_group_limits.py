from __future__ import annotations

import asyncio

import pytest

from chronik.groups import group_machine
from chronik.groups.classic import rebalance
from chronik.groups.classic.group_state import GroupDeadlineKind, GroupDeadlines
from chronik.groups.classic.members import ClassicMember, GroupMembers, estimate_protocols_size
from chronik.groups.classic.rebalance import find_join_request_error
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import MEMBER_BYTES_MAX
from chronik.groups.requests import JoinRequest, LeavingMember
from chronik.limits import GROUP_ID_CHARACTERS_MAX, GROUP_INSTANCE_ID_CHARACTERS_MAX, GROUP_PROTOCOL_CHARACTERS_MAX
from chronik.metadata.commands.groups import UpdateConsumerGroup
from chronik.protocol.codec import encode_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.join_group import JoinGroupResponse
from tests.groups.coordinator_helpers import (
    CONFIG,
    commit_offsets,
    join_request,
    list_groups,
    run_scenario,
    running_coordinator,
    until,
)
from tests.groups.memory_store import MemoryStore

from .group_harness import RANGE, GroupHarness

STRING_LETTERS_MAX = 32_767


def long_request(client_id: str, instance: str | None) -> JoinRequest:
    return JoinRequest("orders", "", instance, client_id, "/127.0.0.1", 10_000, 60_000, "consumer", RANGE)


@pytest.mark.parametrize("letter", ["x", "\N{GRINNING FACE}"])
def test_member_id_of_long_client_id_is_truncated(letter: str) -> None:
    async def scenario() -> None:
        names = letter * (STRING_LETTERS_MAX // len(letter.encode()))
        async with running_coordinator(MemoryStore()) as coordinator:
            given = await coordinator.join(long_request(names, None))
            static = await coordinator.join(long_request("c", letter * GROUP_INSTANCE_ID_CHARACTERS_MAX))
        assert (given.error, static.error) == (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NONE)
        for member_id in (given.member_id, static.member_id):
            encode_response(1, 4, JoinGroupResponse(protocol_name="", member_id=member_id))

    run_scenario(scenario)


def test_static_members_with_zero_rebalance_timeout_do_not_busy_loop() -> None:
    lab = GroupHarness()
    lab.create_stable_group("a", "b")
    first, second = (lab.join_result(lab.join(instance=name, rebalance_ms=0)).member_id for name in ("a", "b"))
    lab.leave(LeavingMember(second))
    assert lab.state() is GroupState.PREPARING_REBALANCE
    lab.advance_time(1)
    assert lab.group.wake_at_ms is not None
    assert lab.group.wake_at_ms > lab.now_ms
    lab.advance_time(60_000)
    assert lab.state() is GroupState.EMPTY
    assert lab.heartbeat(first) is ErrorCode.UNKNOWN_MEMBER_ID


def test_empty_protocols_count_toward_member_size() -> None:
    accepted = join_request("g")
    protocols = (("", b""),) * 100_000
    request = JoinRequest("g", "", None, "c", "/h", 10_000, 60_000, accepted.protocol_type, protocols)
    assert find_join_request_error(request, CONFIG) is ErrorCode.INVALID_REQUEST


def test_protocol_names_count_toward_member_size() -> None:
    name = "n" * GROUP_PROTOCOL_CHARACTERS_MAX
    largest = MEMBER_BYTES_MAX - estimate_protocols_size((("range", b""), (name, b"")))
    accepted = join_request("g")
    for extra, refusal in ((0, None), (1, ErrorCode.INVALID_REQUEST)):
        protocols = (("range", bytes(largest + extra)), (name, b""))
        request = JoinRequest("g", "", None, "c", "/h", 10_000, 60_000, accepted.protocol_type, protocols)
        assert find_join_request_error(request, CONFIG) is refusal


def test_group_rejects_members_beyond_stored_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = GroupHarness()
    (leader,) = lab.create_stable_group(None)
    large = (("range", b"m" * 100),)
    monkeypatch.setattr(
        rebalance, "GROUP_BYTES_MAX", estimate_protocols_size(RANGE) + 2 * estimate_protocols_size(large)
    )
    second, third = lab.join(protocols=large), lab.join(protocols=large)
    refused = lab.join(protocols=large)
    assert lab.join_result(refused).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert lab.is_waiting(second)
    assert lab.is_waiting(third)
    lab.join(leader)
    assert lab.join_result(second).error is ErrorCode.NONE


def test_unused_protocol_names_are_removed() -> None:
    roster = GroupMembers()
    member = ClassicMember("m", None, "c", "/h", 10_000, 60_000, RANGE)
    roster.add(member)
    for number in range(100):
        roster.update_protocols(member, (*RANGE, (f"made up {number}", b"")))
    assert len(roster._supporter_counts) == 2
    roster.remove("m")
    assert len(roster._supporter_counts) == 0


def test_stale_deadlines_are_removed_from_queue() -> None:
    deadlines = GroupDeadlines()
    deadlines.set(GroupDeadlineKind.JOIN, 7)
    for number in range(10_000):
        deadlines.set(GroupDeadlineKind.SESSION, 1_000_000 - number, "moves earlier")
        deadlines.set(GroupDeadlineKind.SESSION, 1_000_000, f"comes and goes {number}")
        deadlines.cancel(GroupDeadlineKind.SESSION, f"comes and goes {number}")
    assert len(deadlines._queue) < 200
    assert deadlines.pop_expired_deadline(7) == (GroupDeadlineKind.JOIN, "")
    assert deadlines.pop_expired_deadline(990_000) is None
    assert deadlines.pop_expired_deadline(990_001) == (GroupDeadlineKind.SESSION, "moves earlier")
    assert deadlines.pop_expired_deadline(2_000_000) is None


def test_commits_to_new_groups_are_rejected_at_group_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(group_machine, "GROUPS_MAX", 2)
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            errors = [(await commit_offsets(coordinator, name))[0] for name in "abca"]
        refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert errors == [ErrorCode.NONE, ErrorCode.NONE, refused, ErrorCode.NONE]
        assert sorted(store.image.groups) == ["a", "b"]

    run_scenario(scenario)


def test_group_id_above_the_length_limit_is_rejected_unless_it_exists() -> None:
    async def scenario() -> None:
        stored = "y" * 30_000
        store = MemoryStore()
        await store.propose(UpdateConsumerGroup(stored, "", 0, None, None, "Empty", (), 0))  # as an earlier version did
        async with running_coordinator(store) as coordinator:
            for group_id, error in (("x" * (GROUP_ID_CHARACTERS_MAX + 1), ErrorCode.INVALID_GROUP_ID), (stored, None)):
                joined = await coordinator.join(join_request(group_id))
                assert joined.error is (error or ErrorCode.MEMBER_ID_REQUIRED)
                assert await commit_offsets(coordinator, group_id) == [error or ErrorCode.NONE]
            assert list(store.image.groups) == [stored]

    run_scenario(scenario)


def test_group_of_cancelled_commit_can_be_listed_and_deleted() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            store.hold()
            commit = asyncio.create_task(commit_offsets(coordinator, "g"))
            await until(lambda: store.held_count == 1)
            commit.cancel()
            await asyncio.wait([commit])
            store.release()
            later = await commit_offsets(coordinator, "later")
            assert later == [ErrorCode.NONE]
            assert {group.group_id for group in list_groups(coordinator)} == {"g", "later"}
            assert coordinator.describe("g").error is ErrorCode.NONE
            assert await coordinator.delete(["g"]) == {"g": ErrorCode.NONE}
            assert "g" not in store.image.groups

    run_scenario(scenario)
