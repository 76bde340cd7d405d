"""Brokers' heartbeats share rounds of reads when there are many of them, and none is answered by an earlier round."""

from __future__ import annotations

import asyncio

import pytest

from chronik.controller import confirming
from chronik.controller.confirming import BROKERS_AT_ONCE_MAX, Confirming

MANY = BROKERS_AT_ONCE_MAX + 1


class Rounds:
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
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirming, "GATHERED_SECONDS", 0.001)


def test_few_brokers_are_answered_at_once_and_many_together() -> None:
    async def story() -> None:
        rounds = Rounds()
        shared = Confirming(rounds.confirm)
        await asyncio.gather(*(shared.confirmed(BROKERS_AT_ONCE_MAX) for _ in range(5)))
        assert rounds.begun == 5
        await asyncio.gather(*(shared.confirmed(MANY) for _ in range(50)))
        assert rounds.begun == 6

    asyncio.run(story())


def test_a_heartbeat_that_comes_while_a_round_is_under_way_waits_for_the_next() -> None:
    async def story() -> None:
        rounds = Rounds()
        rounds.may_end.clear()
        shared = Confirming(rounds.confirm)
        early = asyncio.create_task(shared.confirmed(MANY))
        while not rounds.begun:
            await asyncio.sleep(0)
        late = asyncio.create_task(shared.confirmed(MANY))
        while rounds.begun < 2:
            await asyncio.sleep(0)
        rounds.may_end.set()
        await asyncio.gather(early, late)
        assert rounds.begun == 2

    asyncio.run(story())


def test_one_that_gives_up_does_not_take_the_others_along() -> None:
    async def story() -> None:
        rounds = Rounds()
        shared = Confirming(rounds.confirm)
        first, second = (asyncio.create_task(shared.confirmed(MANY)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()
        assert rounds.begun == 1

    asyncio.run(story())


def test_all_hear_of_a_round_that_failed_and_the_next_begins_anew() -> None:
    async def story() -> None:
        rounds = Rounds()
        rounds.fault = ValueError("nobody follows")
        shared = Confirming(rounds.confirm)
        outcomes = await asyncio.gather(*(shared.confirmed(MANY) for _ in range(3)), return_exceptions=True)
        assert outcomes == [rounds.fault] * 3
        rounds.fault = None
        await shared.confirmed(MANY)

    asyncio.run(story())
