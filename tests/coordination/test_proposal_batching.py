"""Batching of proposals: clients that are answered together should be in the same batch again."""

from __future__ import annotations

import asyncio

import pytest

from chronik.coordination.proposals import PAUSE_KEYS_MIN, ProposalQueue
from chronik.groups.offsets import OffsetCommitBatch
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.groups import CommitOffset, CommitOffsetBatch, OffsetToCommit
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.store import Acks

STORE_SECONDS = 0.02
ROUNDS = 5


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
        last = proposals.last_queued
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
