"""Loading and unloading of many groups in slices, without blocking the event loop or affecting members."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from chronik.clock import ManualClock
from chronik.metadata.commands.groups import GroupMember, UpdateConsumerGroup
from chronik.protocol.errors import ErrorCode
from chronik.scheduler import SLICE_SECONDS
from tests.groups.coordinator_helpers import join, join_request, list_groups, run_scenario, sync_as_leader, until
from tests.groups.shared_image import CoordinatingNode, SharedImage, running_nodes

GROUPS = 200
GENERATION = 5
SESSION_MS = 45_000
STEPS_PER_SLICE = 10
PROTOCOLS = (("range", b"\0\0\0\0\0\1\0\1t"),)


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = count()
    monkeypatch.setattr("chronik.scheduler.perf_counter", lambda: next(steps) * SLICE_SECONDS / STEPS_PER_SLICE)


def stored_group(name: str) -> UpdateConsumerGroup:
    member = GroupMember(f"{name}-member", None, "client", "/127.0.0.1", SESSION_MS, 60_000, PROTOCOLS, b"assignment")
    return UpdateConsumerGroup(name, "consumer", GENERATION, "range", member.member_id, "Stable", (member,), 0)


NAMES = [f"group-{number:03}" for number in range(GROUPS)]


def with_groups() -> SharedImage:
    shared = SharedImage()
    for name in NAMES:
        assert shared.apply(stored_group(name)).code is ErrorCode.NONE
    return shared


def beat(name: str) -> tuple[str, int, str]:
    return name, GENERATION, f"{name}-member"


def in_hand(node: CoordinatingNode) -> int:
    return len(node.groups._host)


async def iterations_until_hosted(node: CoordinatingNode, wanted: int) -> int:
    turns = 0
    while in_hand(node) != wanted:
        await asyncio.sleep(0)
        turns += 1
    return turns


def test_loading_and_unloading_groups_yields_to_event_loop() -> None:
    async def scenario() -> None:
        shared = with_groups()
        async with running_nodes(shared) as node:
            assert in_hand(node[1]) == 0, "the start does not load the groups"
            assert await iterations_until_hosted(node[1], GROUPS) >= GROUPS / STEPS_PER_SLICE
            shared.elect(2)
            assert (in_hand(node[1]), in_hand(node[2])) == (GROUPS, 0)
            assert await iterations_until_hosted(node[1], 0) >= GROUPS / STEPS_PER_SLICE / 2
            await until(lambda: in_hand(node[2]) == GROUPS)
            node[2].is_fenced = True
            node[2].groups.check_fencing()
            assert in_hand(node[2]) == GROUPS
            assert await iterations_until_hosted(node[2], 0) >= GROUPS / STEPS_PER_SLICE

    run_scenario(scenario)


def test_group_is_loaded_on_demand() -> None:
    async def scenario() -> None:
        shared = with_groups()
        async with running_nodes(shared) as node:
            shared.elect(2)
            last = NAMES[-1]
            assert await node[2].groups.heartbeat(*beat(last)) is ErrorCode.NONE
            assert in_hand(node[2]) < GROUPS, "the request was served before all groups were loaded"
            assert await node[1].groups.heartbeat(*beat(last)) is ErrorCode.NOT_COORDINATOR
            assert {entry.group_id for entry in list_groups(node[2].groups)} == set(NAMES)
            assert list_groups(node[1].groups) == []

    run_scenario(scenario)


def test_member_session_starts_when_group_is_loaded() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        shared = with_groups()
        async with running_nodes(shared, clock) as node:
            await until(lambda: in_hand(node[1]) == GROUPS)
            shared.elect(2)
            while in_hand(node[2]) == 0:
                await asyncio.sleep(0)
            early = node[2].groups._host.get_hosted_machine(NAMES[0])
            assert early is not None
            assert node[2].groups._host.get_hosted_machine(NAMES[-1]) is None
            began_ms = node[2].groups._host.now_ms()
            clock.advance(SESSION_MS / 1000 - 1)
            await until(lambda: in_hand(node[2]) == GROUPS)
            late = node[2].groups._host.get_hosted_machine(NAMES[-1])
            assert early.wake_at_ms == began_ms + SESSION_MS
            assert late is not None
            assert late.wake_at_ms == began_ms + 2 * SESSION_MS - 1000

    run_scenario(scenario)


def test_fencing_unloads_all_groups_even_if_short() -> None:
    """Requests of members were rejected while the node was fenced, so their silence must not count for any group."""

    async def scenario() -> None:
        shared = with_groups()
        async with running_nodes(shared) as node:
            await until(lambda: in_hand(node[1]) == GROUPS)
            before = {name: node[1].groups._host.get_hosted_machine(name) for name in NAMES}
            node[1].is_fenced = True
            node[1].groups.check_fencing()
            node[1].is_fenced = False
            assert await node[1].groups.heartbeat(*beat(NAMES[-1])) is ErrorCode.NONE
            served = node[1].groups._host.get_hosted_machine(NAMES[-1])
            assert served is not before[NAMES[-1]]
            host = node[1].groups._host
            await until(lambda: all(host.get_hosted_machine(name) not in (None, before[name]) for name in NAMES))
            assert node[1].groups._host.get_hosted_machine(NAMES[-1]) is served, (
                "the group was loaded again, and only once"
            )

    run_scenario(scenario)


def test_unloaded_group_is_not_served_before_pending_stores_complete() -> None:
    async def scenario() -> None:
        shared = SharedImage()
        async with running_nodes(shared) as node:
            joined = await join(node[1].groups, "g")
            node[1].store.hold()
            syncing = asyncio.create_task(sync_as_leader(node[1].groups, joined, "g"))
            await until(lambda: node[1].store.held_count == 1)
            node[1].is_fenced = True
            node[1].groups.check_fencing()
            node[1].is_fenced = False
            answer = await node[1].groups.join(join_request("g"))
            assert answer.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert (await syncing).error is ErrorCode.NOT_COORDINATOR
            node[1].store.release()
            await until(lambda: node[1].groups.describe("g").error is ErrorCode.NONE)
            assert node[1].groups.describe("g").members[0].assignment == joined.member_id.encode()

    run_scenario(scenario)


def test_close_unloads_groups_in_slices() -> None:
    async def scenario() -> None:
        shared = with_groups()
        async with running_nodes(shared) as node:
            await until(lambda: in_hand(node[1]) == GROUPS)
            closing = asyncio.create_task(node[1].groups.close())
            turns = await iterations_until_hosted(node[1], 0)
            assert turns >= GROUPS / STEPS_PER_SLICE
            await closing

    run_scenario(scenario)
