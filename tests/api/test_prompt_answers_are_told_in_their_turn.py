"""`Prompt`: a waiting fetch that has found enough is encoded in the turn of the loop in which it looked."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from chronik.api.shared.context import Prompt


def test_the_listener_hears_before_the_turn_ends() -> None:
    async def story() -> None:
        heard: list[object] = []
        prompt = prompted(heard)
        prompt.finish(7)
        assert heard == [prompt]
        assert await prompt == 7
        broken = prompted(heard)
        broken.fail(ValueError("why"))
        assert heard[-1] is broken
        with pytest.raises(ValueError, match="why"):
            await broken
        assert len(heard) == 2, "once each"

    asyncio.run(story())


def prompted(heard: list[object]) -> Prompt[int]:
    prompt = Prompt[int](loop=asyncio.get_running_loop())
    prompt.listener = heard.append
    return prompt


def test_whoever_awaits_it_hears_as_from_any_future() -> None:
    async def story() -> None:
        prompt = Prompt[int](loop=asyncio.get_running_loop())
        asyncio.get_running_loop().call_soon(prompt.finish, 7)
        assert await prompt == 7

    asyncio.run(story())


def test_one_that_was_cancelled_is_freed_at_once() -> None:
    """Its listener, which is told of nothing, knows it; and nodes collect no garbage of cycles."""

    async def story() -> weakref.ref[Prompt[int]]:
        prompt = Prompt[int](loop=asyncio.get_running_loop())

        def listener(_: object) -> None:
            prompt.result()

        prompt.listener = listener
        prompt.cancel()
        return weakref.ref(prompt)

    gc.disable()
    try:
        assert asyncio.run(story())() is None
    finally:
        gc.enable()
