"""Who notes what was told, looks, and waits for more misses nothing, whenever it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from chronik.news import News
from tests.replication.virtual_loop import VirtualLoop


def tell(story: Callable[[VirtualLoop, News], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualLoop()
    loop.run(story(loop, News()), [])
    assert not loop.failures


def test_what_was_told_before_the_wait_ends_it_at_once() -> None:
    async def story(loop: VirtualLoop, news: News) -> None:
        heard = news.count
        news.tell()
        assert await news.since(heard, 1.0)
        assert loop.time() == 0.0

    tell(story)


def test_what_is_told_before_a_task_takes_its_first_step_ends_its_wait_at_once() -> None:
    async def story(loop: VirtualLoop, news: News) -> None:
        waiting = loop.create_task(news.since(news.count, 1.0))
        news.tell()
        assert await waiting
        assert loop.time() == 0.0

    tell(story)


def test_what_is_told_while_the_look_takes_its_time_ends_the_wait_at_once() -> None:
    async def story(loop: VirtualLoop, news: News) -> None:
        heard = news.count
        loop.call_later(0.2, news.tell)
        await asyncio.sleep(0.3)
        assert await news.since(heard)
        assert loop.time() == pytest.approx(0.3)

    tell(story)


def test_everybody_who_waits_hears_and_old_news_end_no_new_wait() -> None:
    async def story(loop: VirtualLoop, news: News) -> None:
        waiting = [loop.create_task(news.since(news.count)) for _ in range(3)]
        await asyncio.sleep(0.1)
        news.tell()
        assert await asyncio.gather(*waiting) == [True] * 3
        assert not await news.since(news.count, 0.5)
        assert loop.time() == pytest.approx(0.6)

    tell(story)


@pytest.mark.parametrize("is_timer_first", [True, False])
def test_news_in_the_turn_in_which_the_time_is_up_are_heard(is_timer_first: bool) -> None:
    async def story(loop: VirtualLoop, news: News) -> None:
        if not is_timer_first:
            loop.call_at(0.5, news.tell)
        waiting = loop.create_task(news.since(news.count, 0.5))
        await asyncio.sleep(0)
        if is_timer_first:
            loop.call_at(0.5, news.tell)
        assert await waiting

    tell(story)


@pytest.mark.parametrize("is_told", [True, False])
def test_nothing_is_left_of_who_gave_up(is_told: bool) -> None:
    async def story(loop: VirtualLoop, news: News) -> None:
        waiting = loop.create_task(news.since(news.count, 0.5))
        await asyncio.sleep(0.1)
        if is_told:
            news.tell()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not news._waiting
        await asyncio.sleep(1.0)

    tell(story)
