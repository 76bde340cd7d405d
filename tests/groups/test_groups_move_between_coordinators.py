"""A group is its coordinator's as long as the image says so: the next one takes it up where the last left it."""

from __future__ import annotations

from chronik.clock import SystemClock
from chronik.groups.coordinator import GroupCoordinator
from chronik.groups.requests import HeartbeatRequest
from chronik.metadata.commands import UpdateConsumerGroup
from chronik.metadata.delta import Change, Delta
from chronik.protocol.errors import ErrorCode

from .driving import CONFIG, commit_request, join, join_request, member_of, run
from .memory_store import MemoryStore

LEADERS_CHANGED = Delta(index=1, brokers=(Change(None, None),))


def test_the_next_coordinator_goes_on_with_the_members_of_the_last() -> None:
    async def story() -> None:
        store = MemoryStore()
        owner = ["first"]
        first = GroupCoordinator(store, SystemClock(), CONFIG, owns=lambda group: owner == ["first"])
        second = GroupCoordinator(store, SystemClock(), CONFIG, owns=lambda group: owner == ["second"])
        await first.start()
        await second.start()
        joined = await member_of(first, "g")
        beat = HeartbeatRequest("g", joined.generation, joined.member_id)
        assert await second.heartbeat(beat) is ErrorCode.NOT_COORDINATOR
        owner[:] = ["second"]
        for coordinator in (first, second):
            coordinator.follow(LEADERS_CHANGED)
        assert await first.heartbeat(beat) is ErrorCode.NOT_COORDINATOR
        assert await second.heartbeat(beat) is ErrorCode.NONE
        commit = await second.commit_offsets(commit_request("g", joined))
        assert [error for _, error in commit.errors] == [ErrorCode.NONE]
        assert [error for _, error in (await first.commit_offsets(commit_request("g", joined))).errors] == [
            ErrorCode.NOT_COORDINATOR
        ]
        await first.close()
        await second.close()

    run(story)


def test_a_group_that_was_stored_after_all_is_found_again() -> None:
    async def story() -> None:
        store = MemoryStore()
        coordinator = GroupCoordinator(store, SystemClock(), CONFIG)
        await coordinator.start()
        late = UpdateConsumerGroup("g", "consumer", 7, None, None, "Empty", (), 0)
        await store.propose(late)  # its outcome was unknown, and the group was given up
        assert (await coordinator.join(join_request("g"))).error is ErrorCode.MEMBER_ID_REQUIRED
        assert (await join(coordinator, "g")).generation > 7
        await coordinator.close()

    run(story)
