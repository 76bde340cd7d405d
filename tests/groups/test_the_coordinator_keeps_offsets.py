from __future__ import annotations

import asyncio

import pytest

from chronik.clock import ManualClock
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import GroupConfig
from chronik.groups.requests import (
    OffsetCommitRequest,
)
from chronik.metadata.commands import CommitOffsetBatch, OffsetToCommit
from chronik.protocol.errors import ErrorCode, KafkaError

from .driving import commit_request, member_of, run, started, until
from .memory_store import MemoryStore


def test_commits_of_many_groups_travel_together() -> None:
    async def story() -> None:
        store = MemoryStore()
        async with started(store) as coordinator:
            store.hold()
            first = asyncio.create_task(coordinator.commit_offsets(commit_request("first")))
            await until(lambda: store.held == 1)
            rest = [asyncio.create_task(coordinator.commit_offsets(commit_request(f"g{n}"))) for n in range(500)]
            await asyncio.sleep(0)
            store.release()
            results = await asyncio.gather(first, *rest)
            assert {error for result in results for _, error in result.errors} == {ErrorCode.NONE}
            batches = [command for command in store.commands if isinstance(command, CommitOffsetBatch)]
            assert [len(batch.commits) for batch in batches] == [1, 500]
            assert len(coordinator.list()) == 501

    run(story)


def test_a_failed_batch_fails_everyone_in_it_and_nobody_else() -> None:
    async def story() -> None:
        store = MemoryStore()
        async with started(store) as coordinator:
            store.failures.append(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
            requests = [coordinator.commit_offsets(commit_request(f"g{n}")) for n in range(3)]
            results = await asyncio.gather(*requests)
            assert [result.errors[0][1] for result in results] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
            assert coordinator.list() == ()
            assert (await coordinator.commit_offsets(commit_request("g0"))).errors[0][1] is ErrorCode.NONE

    run(story)


def test_each_offset_of_a_commit_has_its_own_outcome() -> None:
    async def story() -> None:
        store = MemoryStore()
        async with started(store) as coordinator:
            offsets = (
                OffsetToCommit("t", 0, 1, -1, "m" * 4097),
                OffsetToCommit("missing", 0, 2),
                OffsetToCommit("t", 1, 3),
                OffsetToCommit("t", 1_000, 4),
            )
            result = await coordinator.commit_offsets(commit_request("g", None, *offsets))
            assert [error for _, error in result.errors] == [
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            assert list((await coordinator.fetch_offsets("g", None)).offsets) == [("t", 1)]

    run(story)


def test_a_group_exists_once_offsets_are_stored_and_a_refused_commit_makes_none() -> None:
    async def story() -> None:
        store = MemoryStore()
        async with started(store) as coordinator:
            await coordinator.commit_offsets(commit_request("g", None, OffsetToCommit("missing", 0, 2)))
            assert coordinator.describe("g").state == GroupState.DEAD
            await coordinator.commit_offsets(commit_request("g"))
            described = coordinator.describe("g")
            assert (described.state, described.error, described.protocol_type) == ("Empty", ErrorCode.NONE, "")
            await coordinator.commit_offsets(commit_request(""))
            assert coordinator.describe("").state == "Empty"

    run(story)


@pytest.mark.parametrize(
    ("knows", "error"), [(True, ErrorCode.GROUP_ID_NOT_FOUND), (False, ErrorCode.ILLEGAL_GENERATION)]
)
def test_a_member_of_no_group_cannot_commit(knows: bool, error: ErrorCode) -> None:
    async def story() -> None:
        async with started(MemoryStore()) as coordinator:
            offsets = (OffsetToCommit("t", 0, 1),)
            request = OffsetCommitRequest("g", offsets, 3, "member", knows_group_id_not_found=knows)
            assert (await coordinator.commit_offsets(request)).errors == ((("t", 0), error),)

    run(story)


def test_offsets_are_deleted_unless_the_group_subscribes_to_their_topic() -> None:
    async def story() -> None:
        store = MemoryStore()
        async with started(store) as coordinator:
            joined = await member_of(coordinator, "g")
            offsets = (OffsetToCommit("t", 0, 1), OffsetToCommit("other", 0, 2))
            await coordinator.commit_offsets(commit_request("g", joined, *offsets))
            result = await coordinator.delete_offsets("g", [("t", 0), ("other", 0), ("other", 7)])
            assert result.errors == (
                (("t", 0), ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
                (("other", 0), ErrorCode.NONE),
                (("other", 7), ErrorCode.NONE),
            )
            assert list((await coordinator.fetch_offsets("g", None)).offsets) == [("t", 0)]

    run(story)


def test_offsets_of_an_empty_group_expire_and_the_group_with_them() -> None:
    async def story() -> None:
        store, clock = MemoryStore(), ManualClock()
        config = GroupConfig(offsets_retention_ms=60_000)
        async with started(store, config, clock) as coordinator:
            await coordinator.commit_offsets(commit_request("g"))
            clock.advance(59.9)
            await coordinator.expire_offsets()
            assert len(coordinator.list()) == 1
            clock.advance(0.1)
            await coordinator.expire_offsets()
            assert coordinator.list() == ()
            assert "g" not in store.image.groups

    run(story)


def test_expiry_comes_by_itself() -> None:
    async def story() -> None:
        config = GroupConfig(offsets_retention_ms=1, offsets_retention_check_interval_ms=1)
        async with started(MemoryStore(), config) as coordinator:
            await coordinator.commit_offsets(commit_request("g"))
            await until(lambda: coordinator.list() == ())

    run(story)
