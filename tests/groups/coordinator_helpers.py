"""Helpers for coordinator tests: a test timeout, a running coordinator, and typical client requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

from chronik.clock import ManualClock, SystemClock
from chronik.coordination.proposals import CoordinatorStore
from chronik.groups.config import GroupConfig
from chronik.groups.coordinator import GroupCoordinator
from chronik.groups.offsets import read_committed_offsets
from chronik.groups.requests import JoinRequest, JoinResult, ListedGroup, SyncRequest, SyncResult, TopicPartition
from chronik.metadata.commands.groups import OffsetToCommit
from chronik.protocol.errors import ErrorCode
from chronik.scheduler import run_in_slices

DEADLINE_SECONDS = 20.0
CONFIG = GroupConfig(min_session_timeout_ms=1)

Story = Callable[[], Coroutine[Any, Any, None]]


def run_scenario(story: Story) -> None:
    async def run_with_timeout() -> None:
        await asyncio.wait_for(story(), DEADLINE_SECONDS)

    asyncio.run(run_with_timeout())


@asynccontextmanager
async def running_coordinator(
    store: CoordinatorStore, config: GroupConfig = CONFIG, clock: ManualClock | SystemClock | None = None
) -> AsyncIterator[GroupCoordinator]:
    fatal: list[BaseException] = []
    coordinator = GroupCoordinator(store, clock or SystemClock(), config, fatal.append)
    await coordinator.start()
    try:
        yield coordinator
    finally:
        await coordinator.close()
    assert fatal == []


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, at most until the timeout of `run`."""
    while not condition():
        await asyncio.sleep(0.001)


def join_request(group_id: str, member_id: str = "", session_ms: int = 10_000) -> JoinRequest:
    protocols = (("range", b"\0\0\0\0\0\1\0\1t"),)
    return JoinRequest(group_id, member_id, None, "client", "/127.0.0.1", session_ms, 60_000, "consumer", protocols)


async def join(coordinator: GroupCoordinator, group_id: str, session_ms: int = 10_000) -> JoinResult:
    given = await coordinator.join(join_request(group_id, session_ms=session_ms))
    assert given.error is ErrorCode.MEMBER_ID_REQUIRED
    return await coordinator.join(join_request(group_id, given.member_id, session_ms=session_ms))


async def sync_as_leader(coordinator: GroupCoordinator, joined: JoinResult, group_id: str) -> SyncResult:
    assignments = tuple((member.member_id, member.member_id.encode()) for member in joined.members)
    request = SyncRequest(group_id, joined.generation, joined.member_id, assignments=assignments)
    return await coordinator.sync(request)


async def join_and_sync(coordinator: GroupCoordinator, group_id: str, session_ms: int = 10_000) -> JoinResult:
    joined = await join(coordinator, group_id, session_ms)
    assert (await sync_as_leader(coordinator, joined, group_id)).error is ErrorCode.NONE
    return joined


async def commit_offsets(
    coordinator: GroupCoordinator, group_id: str, joined: JoinResult | None = None, *offsets: OffsetToCommit
) -> list[ErrorCode]:
    offsets = offsets or (OffsetToCommit("t", 0, 5, 3, "note"),)
    if joined is None:
        return await coordinator.offsets.commit(group_id, offsets)
    return await coordinator.offsets.commit(group_id, offsets, joined.generation, joined.member_id)


def list_groups(
    coordinator: GroupCoordinator, states: Collection[str] = (), types: Collection[str] = ()
) -> list[ListedGroup]:
    return [entry for entry in coordinator.iterate_groups(states, types) if entry is not None]


async def committed_offsets(
    store: CoordinatorStore, group_id: str, wanted: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, tuple[int, int, str | None] | None]:
    """Return offset, leader epoch and metadata of each committed offset."""
    found = await run_in_slices(read_committed_offsets(store.image, group_id, wanted))
    return {key: None if at is None else (at.offset, at.leader_epoch, at.metadata) for key, at in found.items()}
