"""Batched confirmation of heartbeats: many heartbeats share a read round, which starts after their arrival."""

from __future__ import annotations

import asyncio

import pytest

from chronik.controller.heartbeats import UNBATCHED_BROKERS_MAX, HeartbeatConfirmation

MANY = UNBATCHED_BROKERS_MAX + 1


class FakeReadRounds:
    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.fault: Exception | None = None

    async def confirm(self) -> None:
        self.begun += 1
        await self.may_end.wait()
        if self.fault is not None:
            raise self.fault


@pytest.fixture(autouse=True)
def short_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.controller.heartbeats.BATCH_SECONDS", 0.001)


def test_heartbeats_are_batched_only_with_many_brokers() -> None:
    async def scenario() -> None:
        rounds = FakeReadRounds()
        shared = HeartbeatConfirmation(rounds.confirm)
        await asyncio.gather(*(shared.wait_confirmed(UNBATCHED_BROKERS_MAX) for _ in range(5)))
        assert rounds.begun == 5
        await asyncio.gather(*(shared.wait_confirmed(MANY) for _ in range(50)))
        assert rounds.begun == 6

    asyncio.run(scenario())


def test_heartbeat_during_round_waits_for_next_round() -> None:
    async def scenario() -> None:
        rounds = FakeReadRounds()
        rounds.may_end.clear()
        shared = HeartbeatConfirmation(rounds.confirm)
        early = asyncio.create_task(shared.wait_confirmed(MANY))
        while not rounds.begun:
            await asyncio.sleep(0)
        late = asyncio.create_task(shared.wait_confirmed(MANY))
        while rounds.begun < 2:
            await asyncio.sleep(0)
        rounds.may_end.set()
        await asyncio.gather(early, late)
        assert rounds.begun == 2

    asyncio.run(scenario())


def test_cancelled_heartbeat_does_not_cancel_batch() -> None:
    async def scenario() -> None:
        rounds = FakeReadRounds()
        shared = HeartbeatConfirmation(rounds.confirm)
        first, second = (asyncio.create_task(shared.wait_confirmed(MANY)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()
        assert rounds.begun == 1

    asyncio.run(scenario())


def test_failed_round_fails_batch_and_next_round_starts() -> None:
    async def scenario() -> None:
        rounds = FakeReadRounds()
        rounds.fault = ValueError("no majority")
        shared = HeartbeatConfirmation(rounds.confirm)
        outcomes = await asyncio.gather(*(shared.wait_confirmed(MANY) for _ in range(3)), return_exceptions=True)
        assert outcomes == [rounds.fault] * 3
        rounds.fault = None
        await shared.wait_confirmed(MANY)

    asyncio.run(scenario())
