from __future__ import annotations

import asyncio

import pytest

from chronik.clock import ManualClock
from chronik.coordination.proposals import ProposalQueue
from chronik.groups.classic.transitions import GroupState
from chronik.groups.config import GroupConfig
from chronik.groups.offsets import OffsetCommitBatch
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.groups import (
    CommitOffset,
    CommitOffsetBatch,
    DeleteConsumerGroup,
    ExpireOffsets,
    OffsetToCommit,
)
from chronik.metadata.commands.transactions import NO_RECORD_INDEX, AddToTransaction, EndTransaction, InitTransaction
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.store import Acks
from chronik.protocol.errors import ErrorCode, KafkaError

from .coordinator_helpers import (
    commit_offsets,
    committed_offsets,
    join_and_sync,
    list_groups,
    run_scenario,
    running_coordinator,
    until,
)
from .memory_store import MemoryStore


def test_commits_of_many_groups_are_batched() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            store.hold()
            first = asyncio.create_task(commit_offsets(coordinator, "first"))
            await until(lambda: store.held_count == 1)
            rest = [asyncio.create_task(commit_offsets(coordinator, f"g{n}")) for n in range(500)]
            await asyncio.sleep(0)
            store.release()
            results = await asyncio.gather(first, *rest)
            assert {error for result in results for error in result} == {ErrorCode.NONE}
            batches = [command for command in store.commands if isinstance(command, CommitOffsetBatch)]
            assert [len(batch.commits) for batch in batches] == [1, 500]
            assert len(list_groups(coordinator)) == 501

    run_scenario(scenario)


def test_failed_batch_fails_only_its_own_commits() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            store.failures.append(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
            requests = [commit_offsets(coordinator, f"g{n}") for n in range(3)]
            results = await asyncio.gather(*requests)
            assert results == [[ErrorCode.COORDINATOR_NOT_AVAILABLE]] * 3
            assert list_groups(coordinator) == []
            assert (await commit_offsets(coordinator, "g0"))[0] is ErrorCode.NONE

    run_scenario(scenario)


def test_each_offset_has_its_own_error_code() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            offsets = (
                OffsetToCommit("t", 0, 1, -1, "m" * 4097),
                OffsetToCommit("missing", 0, 2),
                OffsetToCommit("t", 1, 3),
                OffsetToCommit("t", 1_000, 4),
            )
            result = await commit_offsets(coordinator, "g", None, *offsets)
            assert result == [
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            assert list(await committed_offsets(store, "g")) == [("t", 1)]

    run_scenario(scenario)


def test_only_stored_commit_creates_group() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            await commit_offsets(coordinator, "g", None, OffsetToCommit("missing", 0, 2))
            assert coordinator.describe("g").state == GroupState.DEAD
            await commit_offsets(coordinator, "g")
            described = coordinator.describe("g")
            assert (described.state, described.error, described.protocol_type) == ("Empty", ErrorCode.NONE, "")
            await commit_offsets(coordinator, "")
            assert coordinator.describe("").state == "Empty"

    run_scenario(scenario)


def test_commit_with_generation_to_missing_group_is_rejected() -> None:
    async def scenario() -> None:
        async with running_coordinator(MemoryStore()) as coordinator:
            errors = await coordinator.offsets.commit("g", [OffsetToCommit("t", 0, 1)], 3, "member")
            assert errors == [ErrorCode.GROUP_ID_NOT_FOUND]

    run_scenario(scenario)


def test_offset_deletion_is_rejected_for_subscribed_topics() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with running_coordinator(store) as coordinator:
            joined = await join_and_sync(coordinator, "g")
            offsets = (OffsetToCommit("t", 0, 1), OffsetToCommit("other", 0, 2))
            await commit_offsets(coordinator, "g", joined, *offsets)
            result = await coordinator.delete_offsets("g", [("t", 0), ("other", 0), ("other", 7)])
            assert result == {
                ("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                ("other", 0): ErrorCode.NONE,
                ("other", 7): ErrorCode.NONE,
            }
            assert list(await committed_offsets(store, "g")) == [("t", 0)]

    run_scenario(scenario)


def test_empty_group_is_deleted_with_its_last_expired_offset() -> None:
    async def scenario() -> None:
        store, clock = MemoryStore(), ManualClock()
        config = GroupConfig(offsets_retention_ms=60_000)
        async with running_coordinator(store, config, clock) as coordinator:
            await commit_offsets(coordinator, "g")
            clock.advance(59.9)
            await coordinator.offsets.expire()
            assert len(list_groups(coordinator)) == 1
            clock.advance(0.1)
            await coordinator.offsets.expire()
            assert list_groups(coordinator) == []
            assert "g" not in store.image.groups

    run_scenario(scenario)


def test_offset_expiry_runs_in_background() -> None:
    async def scenario() -> None:
        config = GroupConfig(offsets_retention_ms=1, offsets_retention_check_interval_ms=1)
        async with running_coordinator(MemoryStore(), config) as coordinator:
            await commit_offsets(coordinator, "g")
            await until(lambda: list_groups(coordinator) == [])

    run_scenario(scenario)


def test_group_with_staged_offsets_does_not_expire() -> None:
    """The group cannot be deleted before the transaction ends, so expiry must not retry in a loop."""

    async def scenario() -> None:
        clock = ManualClock()
        store = MemoryStore()
        async with running_coordinator(store, GroupConfig(offsets_retention_ms=1000), clock) as coordinator:
            await commit_offsets(coordinator, "g")
            await store.propose(InitTransaction("pay", NO_RECORD_INDEX, 7, 0, 60_000, 0))
            await store.propose(AddToTransaction("pay", store.image.transactions["pay"].index, (), ("g",), 0))
            began_index = store.image.transactions["pay"].began_index
            staged = await coordinator.offsets.stage("g", "pay", began_index, [OffsetToCommit("t", 1, 9)])
            assert staged == [ErrorCode.NONE]
            clock.advance(2)
            await coordinator.offsets.expire()
            assert list(store.image.groups) == ["g"]
            assert sum(isinstance(command, ExpireOffsets) for command in store.commands) == 1
            await coordinator.offsets.expire()
            assert sum(isinstance(command, ExpireOffsets) for command in store.commands) == 1
            await store.propose(EndTransaction("pay", store.image.transactions["pay"].index, False, 0, 0))
            await coordinator.offsets.expire()
            assert not store.image.groups

    run_scenario(scenario)


class Store:
    def __init__(self) -> None:
        self.image = Image()
        self.asked: list[tuple[str, Acks]] = []
        self.gate = asyncio.Event()

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> ApplyResult:
        self.asked.append((type(command).__name__, acks))
        await self.gate.wait()
        return ApplyResult()


@pytest.mark.parametrize("acks", list(Acks))
def test_commit_response_time_follows_configured_acks(acks: Acks) -> None:
    async def scenario() -> None:
        store = Store()
        proposals = ProposalQueue(store)
        running = asyncio.create_task(proposals.run())
        commit = CommitOffset("group", (OffsetToCommit("topic", 0, 5), OffsetToCommit("topic", 1, 6)), 0)
        batch = OffsetCommitBatch(acks, lambda group_id: None)
        proposals.put(batch)
        answer = batch.add(commit, 10)
        proposals.submit("other", DeleteConsumerGroup("other"), lambda error: None)
        assert answer.done() == (acks is Acks.NONE)
        while len(store.asked) < 2:
            await asyncio.sleep(0)
        assert store.asked == [("CommitOffsetBatch", acks), ("DeleteConsumerGroup", Acks.ALL)]
        store.gate.set()
        assert await answer == [ErrorCode.NONE, ErrorCode.NONE]
        proposals.close()
        await running

    asyncio.run(asyncio.wait_for(scenario(), 10))
