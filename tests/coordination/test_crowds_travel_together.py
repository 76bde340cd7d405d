"""A wave costs much the same whatever it carries: those who come back together should travel together."""

from __future__ import annotations

import asyncio

import pytest

from chronik.coordination import proposals as proposals_module
from chronik.coordination.proposals import CROWD_KEYS, Proposals
from chronik.groups.offsets import CommitBatch
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.groups import CommitOffset, CommitOffsetBatch, OffsetToCommit
from chronik.metadata.image import Image
from chronik.metadata.records import Result
from chronik.metadata.stores.store import Acks

STORE_SECONDS = 0.02
ROUNDS = 5


class Store:
    def __init__(self) -> None:
        self.image = Image()
        self.sizes: list[int] = []

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> Result:
        assert isinstance(command, CommitOffsetBatch)
        self.sizes.append(len(command.commits))
        await asyncio.sleep(STORE_SECONDS)
        return Result()


async def _commit_again_and_again(proposals: Proposals, number: int) -> None:
    group = f"group-{number}"
    for offset in range(ROUNDS):
        last = proposals.last
        if not isinstance(last, CommitBatch):
            last = CommitBatch(Acks.ALL, lambda group_id: None)
            proposals.put(last)
        await last.add(CommitOffset(group, (OffsetToCommit("topic", 0, offset),), 0), 10)
        for _ in range(number):  # the way to the client and back, which is longer for some
            await asyncio.sleep(0)


def _waves_of(groups: int) -> list[int]:
    async def scenario() -> list[int]:
        store = Store()
        proposals = Proposals(store)
        running = asyncio.create_task(proposals.run())
        await asyncio.gather(*(_commit_again_and_again(proposals, number) for number in range(groups)))
        proposals.close()
        await running
        return store.sizes

    return asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_crowd_that_comes_back_after_each_wave_is_one_wave_again() -> None:
    assert _waves_of(CROWD_KEYS)[1:] == [CROWD_KEYS] * (ROUNDS - 1)


def test_a_rest_ends_when_all_of_the_crowd_have_come_or_the_node_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals_module, "REST_OF_WAVE", 1e6)
    monkeypatch.setattr(proposals_module, "REST_SECONDS_MAX", 1e6)
    assert _waves_of(2 * CROWD_KEYS)[1:] == [2 * CROWD_KEYS] * (ROUNDS - 1)


def test_a_few_are_not_kept_waiting_for_each_other() -> None:
    sizes = _waves_of(CROWD_KEYS - 1)
    assert sum(sizes) == (CROWD_KEYS - 1) * ROUNDS
    assert len(sizes) > ROUNDS  # whoever comes back first goes alone
