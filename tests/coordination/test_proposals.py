"""Order and batching of proposals: those for one key are never in flight together, even if the store reorders."""

from __future__ import annotations

import asyncio

import pytest

from chronik.coordination.proposals import BATCH_ENTRIES_MAX, PAUSE_KEYS_MIN, ProposalQueue
from chronik.groups.offsets import OffsetCommitBatch
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.groups import CommitOffset, CommitOffsetBatch, DeleteConsumerGroup, OffsetToCommit
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.raft_store import PENDING_PROPOSALS_MAX
from chronik.metadata.stores.store import Acks
from chronik.protocol.errors import ErrorCode, KafkaError

STORE_SECONDS = 0.02
ROUNDS = 5


class SlowStore:
    """A store that completes the newest proposal first, as a store with retries may."""

    def __init__(self) -> None:
        self.image = Image()
        self.under_way: list[tuple[Command, asyncio.Future[ApplyResult]]] = []
        self.ended: list[Command] = []

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> ApplyResult:
        done: asyncio.Future[ApplyResult] = asyncio.get_running_loop().create_future()
        self.under_way.append((command, done))
        return await done

    def end_newest(self) -> None:
        command, done = self.under_way.pop()
        self.ended.append(command)
        done.set_result(ApplyResult())


def commit(group: str, offset: int) -> CommitOffset:
    return CommitOffset(group, (OffsetToCommit("topic", 0, offset),), 0)


def test_commits_of_same_group_are_never_concurrent() -> None:
    async def scenario() -> None:
        store = SlowStore()
        proposals = ProposalQueue(store)
        running = asyncio.create_task(proposals.run())
        for offset in range(3):
            batch = OffsetCommitBatch(Acks.ALL, lambda group_id: None)
            batch.add(commit("a", offset), 10)
            proposals.put(batch)
            proposals.submit("b", DeleteConsumerGroup("b"), lambda error: None)
        while len(store.ended) < 6:
            await asyncio.sleep(0)
            groups = [
                group
                for command, _ in store.under_way
                for group in (
                    [each.group_id for each in command.commits]
                    if isinstance(command, CommitOffsetBatch)
                    else [getattr(command, "group_id", "")]
                )
            ]
            assert len(groups) == len(set(groups)), groups
            if store.under_way:
                store.end_newest()
        offsets = [
            offset.offset
            for command in store.ended
            if isinstance(command, CommitOffsetBatch)
            for each in command.commits
            for offset in each.offsets
        ]
        assert offsets == [0, 1, 2]
        proposals.close()
        await running

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_concurrent_proposals_are_limited() -> None:
    async def scenario() -> None:
        store = SlowStore()
        proposals = ProposalQueue(store)
        running = asyncio.create_task(proposals.run())
        count = PENDING_PROPOSALS_MAX + 1_000
        outcomes: list[ErrorCode | None] = []
        for number in range(count):
            proposals.submit(f"group-{number}", DeleteConsumerGroup(f"group-{number}"), outcomes.append)
        most = 0
        while len(outcomes) < count:
            await asyncio.sleep(0)
            most = max(most, len(store.under_way))
            while store.under_way:
                store.end_newest()
        assert most == BATCH_ENTRIES_MAX < PENDING_PROPOSALS_MAX / 2
        assert outcomes == [None] * count
        proposals.close()
        await running

    asyncio.run(asyncio.wait_for(scenario(), 10))


class SilentStore(SlowStore):
    """A store without a majority."""

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> ApplyResult:
        self.ended.append(command)
        await asyncio.sleep(0)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def test_close_waits_once_for_unresponsive_store() -> None:
    """The close must not wait for the timeout of each queued commit."""

    async def scenario() -> None:
        store = SilentStore()
        proposals = ProposalQueue(store)
        answers: list[ErrorCode | None] = []
        for _ in range(5):
            proposals.submit("a", DeleteConsumerGroup("a"), answers.append)
        proposals.close()
        await proposals.run()
        assert len(store.ended) == 1
        assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 5

    asyncio.run(scenario())


def test_close_completes_queued_proposals() -> None:
    async def scenario() -> None:
        store = SlowStore()
        proposals = ProposalQueue(store)
        answers: list[ErrorCode | None] = []
        for _ in range(5):
            proposals.submit("a", DeleteConsumerGroup("a"), answers.append)
        proposals.close()
        running = asyncio.create_task(proposals.run())
        while not running.done():
            await asyncio.sleep(0)
            if store.under_way:
                store.end_newest()
        assert answers == [None] * 5

    asyncio.run(scenario())


class Store:
    def __init__(self) -> None:
        self.image = Image()
        self.sizes: list[int] = []

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> ApplyResult:
        assert isinstance(command, CommitOffsetBatch)
        self.sizes.append(len(command.commits))
        await asyncio.sleep(STORE_SECONDS)
        return ApplyResult()


async def _commit_repeatedly(proposals: ProposalQueue, number: int) -> None:
    group = f"group-{number}"
    for offset in range(ROUNDS):
        last = proposals.last_queued_entry
        if not isinstance(last, OffsetCommitBatch):
            last = OffsetCommitBatch(Acks.ALL, lambda group_id: None)
            proposals.put(last)
        await last.add(CommitOffset(group, (OffsetToCommit("topic", 0, offset),), 0), 10)
        for _ in range(number):  # round trips to clients take different times
            await asyncio.sleep(0)


def _batch_sizes(groups: int) -> list[int]:
    async def scenario() -> list[int]:
        store = Store()
        proposals = ProposalQueue(store)
        running = asyncio.create_task(proposals.run())
        await asyncio.gather(*(_commit_repeatedly(proposals, number) for number in range(groups)))
        proposals.close()
        await running
        return store.sizes

    return asyncio.run(asyncio.wait_for(scenario(), 30))


def test_returning_clients_share_next_batch() -> None:
    assert _batch_sizes(PAUSE_KEYS_MIN)[1:] == [PAUSE_KEYS_MIN] * (ROUNDS - 1)


def test_pause_ends_when_all_keys_are_queued_or_queue_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.coordination.proposals.PAUSE_FRACTION", 1e6)
    monkeypatch.setattr("chronik.coordination.proposals.PAUSE_SECONDS_MAX", 1e6)
    assert _batch_sizes(2 * PAUSE_KEYS_MIN)[1:] == [2 * PAUSE_KEYS_MIN] * (ROUNDS - 1)


def test_few_keys_are_proposed_without_pause() -> None:
    sizes = _batch_sizes(PAUSE_KEYS_MIN - 1)
    assert sum(sizes) == (PAUSE_KEYS_MIN - 1) * ROUNDS
    assert len(sizes) > ROUNDS  # the first client to return is proposed alone
