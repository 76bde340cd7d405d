"""A hundred thousand groups may change hands at once: nobody else on the node waits for it, and no member notices."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from chronik import scheduler
from chronik.clock import ManualClock
from chronik.metadata.commands.groups import GroupMember, UpdateConsumerGroup
from chronik.protocol.errors import ErrorCode
from chronik.scheduler import SLICE_SECONDS
from tests.groups.driving import join, join_request, lead, listed, run, until
from tests.groups.shared_image import CoordinatingNode, SharedImage, nodes

GROUPS = 200
GENERATION = 5
SESSION_MS = 45_000
STEPS_PER_SLICE = 10
PROTOCOLS = (("range", b"\0\0\0\0\0\1\0\1t"),)


@pytest.fixture(autouse=True)
def slices_end_after_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = count()
    monkeypatch.setattr(scheduler, "perf_counter", lambda: next(steps) * SLICE_SECONDS / STEPS_PER_SLICE)


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
    return len(node.groups._custody)


async def turns_until_in_hand(node: CoordinatingNode, wanted: int) -> int:
    turns = 0
    while in_hand(node) != wanted:
        await asyncio.sleep(0)
        turns += 1
    return turns


def test_others_have_their_turn_while_groups_are_taken_up_and_let_go_of() -> None:
    async def story() -> None:
        shared = with_groups()
        async with nodes(shared) as node:
            assert in_hand(node[1]) == 0, "the start does not wait for them"
            assert await turns_until_in_hand(node[1], GROUPS) >= GROUPS / STEPS_PER_SLICE
            shared.elect(2)
            assert (in_hand(node[1]), in_hand(node[2])) == (GROUPS, 0)
            assert await turns_until_in_hand(node[1], 0) >= GROUPS / STEPS_PER_SLICE / 2
            await until(lambda: in_hand(node[2]) == GROUPS)
            node[2].is_fenced = True
            node[2].groups.look()
            assert in_hand(node[2]) == GROUPS
            assert await turns_until_in_hand(node[2], 0) >= GROUPS / STEPS_PER_SLICE

    run(story)


def test_a_group_whose_turn_has_not_come_is_served_all_the_same() -> None:
    async def story() -> None:
        shared = with_groups()
        async with nodes(shared) as node:
            shared.elect(2)
            last = NAMES[-1]
            assert await node[2].groups.heartbeat(*beat(last)) is ErrorCode.NONE
            assert in_hand(node[2]) < GROUPS, "it was served before all were taken up"
            assert await node[1].groups.heartbeat(*beat(last)) is ErrorCode.NOT_COORDINATOR
            assert {entry.group_id for entry in listed(node[2].groups)} == set(NAMES)
            assert listed(node[1].groups) == []

    run(story)


def test_a_session_begins_when_its_group_is_taken_up() -> None:
    async def story() -> None:
        clock = ManualClock()
        shared = with_groups()
        async with nodes(shared, clock) as node:
            await until(lambda: in_hand(node[1]) == GROUPS)
            shared.elect(2)
            while in_hand(node[2]) == 0:
                await asyncio.sleep(0)
            early = node[2].groups._custody.in_hand(NAMES[0])
            assert early is not None
            assert node[2].groups._custody.in_hand(NAMES[-1]) is None
            began_ms = node[2].groups._custody.now_ms()
            clock.advance(SESSION_MS / 1000 - 1)
            await until(lambda: in_hand(node[2]) == GROUPS)
            late = node[2].groups._custody.in_hand(NAMES[-1])
            assert early.wake_at_ms == began_ms + SESSION_MS
            assert late is not None
            assert late.wake_at_ms == began_ms + 2 * SESSION_MS - 1000

    run(story)


def test_once_fenced_every_group_is_let_go_of_even_if_the_node_comes_back_meanwhile() -> None:
    """Its members were refused: their silence since then must not count, whichever group has had its turn."""

    async def story() -> None:
        shared = with_groups()
        async with nodes(shared) as node:
            await until(lambda: in_hand(node[1]) == GROUPS)
            before = {name: node[1].groups._custody.in_hand(name) for name in NAMES}
            node[1].is_fenced = True
            node[1].groups.look()
            node[1].is_fenced = False
            assert await node[1].groups.heartbeat(*beat(NAMES[-1])) is ErrorCode.NONE
            served = node[1].groups._custody.in_hand(NAMES[-1])
            assert served is not before[NAMES[-1]]
            custody = node[1].groups._custody
            await until(lambda: all(custody.in_hand(name) not in (None, before[name]) for name in NAMES))
            assert node[1].groups._custody.in_hand(NAMES[-1]) is served, "it was taken up anew, and only once"

    run(story)


def test_what_was_given_up_is_not_served_before_the_store_has_decided() -> None:
    async def story() -> None:
        shared = SharedImage()
        async with nodes(shared) as node:
            joined = await join(node[1].groups, "g")
            node[1].store.hold()
            syncing = asyncio.create_task(lead(node[1].groups, joined, "g"))
            await until(lambda: node[1].store.held == 1)
            node[1].is_fenced = True
            node[1].groups.look()
            node[1].is_fenced = False
            answer = await node[1].groups.join(join_request("g"))
            assert answer.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert (await syncing).error is ErrorCode.NOT_COORDINATOR
            node[1].store.release()
            await until(lambda: node[1].groups.describe("g").error is ErrorCode.NONE)
            assert node[1].groups.describe("g").members[0].assignment == joined.member_id.encode()

    run(story)


def test_closing_lets_go_of_all_in_slices_too() -> None:
    async def story() -> None:
        shared = with_groups()
        async with nodes(shared) as node:
            await until(lambda: in_hand(node[1]) == GROUPS)
            closing = asyncio.create_task(node[1].groups.close())
            turns = await turns_until_in_hand(node[1], 0)
            assert turns >= GROUPS / STEPS_PER_SLICE
            await closing

    run(story)
