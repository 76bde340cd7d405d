"""Notifier: no notification is lost between reading the generation, checking the state, and waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from chronik.notifier import Notifier
from tests.replication.virtual_loop import VirtualLoop


def run_scenario(scenario: Callable[[VirtualLoop, Notifier], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualLoop()
    loop.run(scenario(loop, Notifier()), [])
    assert not loop.failures


def test_notification_before_wait_ends_it_immediately() -> None:
    async def scenario(loop: VirtualLoop, news: Notifier) -> None:
        generation = news.generation
        news.notify()
        assert await news.wait(generation, 1.0)
        assert loop.time() == 0.0

    run_scenario(scenario)


def test_notification_before_waiting_task_starts_ends_its_wait() -> None:
    async def scenario(loop: VirtualLoop, news: Notifier) -> None:
        waiting = loop.create_task(news.wait(news.generation, 1.0))
        news.notify()
        assert await waiting
        assert loop.time() == 0.0

    run_scenario(scenario)


def test_notification_during_slow_state_check_ends_the_wait() -> None:
    async def scenario(loop: VirtualLoop, news: Notifier) -> None:
        generation = news.generation
        loop.call_later(0.2, news.notify)
        await asyncio.sleep(0.3)
        assert await news.wait(generation)
        assert loop.time() == pytest.approx(0.3)

    run_scenario(scenario)


def test_notification_wakes_all_waiters_but_not_later_waits() -> None:
    async def scenario(loop: VirtualLoop, news: Notifier) -> None:
        waiting = [loop.create_task(news.wait(news.generation)) for _ in range(3)]
        await asyncio.sleep(0.1)
        news.notify()
        assert await asyncio.gather(*waiting) == [True] * 3
        assert not await news.wait(news.generation, 0.5)
        assert loop.time() == pytest.approx(0.6)

    run_scenario(scenario)


@pytest.mark.parametrize("is_timer_first", [True, False])
def test_notification_in_same_iteration_as_timeout_is_not_lost(is_timer_first: bool) -> None:
    async def scenario(loop: VirtualLoop, news: Notifier) -> None:
        if not is_timer_first:
            loop.call_at(0.5, news.notify)
        waiting = loop.create_task(news.wait(news.generation, 0.5))
        await asyncio.sleep(0)
        if is_timer_first:
            loop.call_at(0.5, news.notify)
        assert await waiting

    run_scenario(scenario)


@pytest.mark.parametrize("is_notified", [True, False])
def test_cancelled_waiter_is_removed(is_notified: bool) -> None:
    async def scenario(loop: VirtualLoop, news: Notifier) -> None:
        waiting = loop.create_task(news.wait(news.generation, 0.5))
        await asyncio.sleep(0.1)
        if is_notified:
            news.notify()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not news._waiting
        await asyncio.sleep(1.0)

    run_scenario(scenario)
