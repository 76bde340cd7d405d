"""`offset_acks`: a commit waits for a majority, for the leader's disk, or for nothing. Membership always waits."""

from __future__ import annotations

import asyncio

import pytest

from chronik.coordination.proposals import ProposalQueue
from chronik.groups.offsets import OffsetCommitBatch
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.groups import CommitOffset, DeleteConsumerGroup, OffsetToCommit
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.store import Acks
from chronik.protocol.errors import ErrorCode


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
