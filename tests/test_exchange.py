"""Replies: settled once, reported synchronously, cancelled without a trace."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Generator
from typing import Any

import pytest

from chronik.exchange import Disconnect, Reply


def test_resolved_reply_is_reported_synchronously_and_once() -> None:
    reply: Reply[int] = Reply()
    reported: list[Reply[int]] = []
    reply.on_resolved = reported.append
    reply.resolve(7)
    reply.resolve(8)
    reply.fail(ValueError())
    assert reported == [reply]
    assert reply.response == 7
    assert reply.error is None


def test_failed_reply_raises_its_error_where_it_is_awaited() -> None:
    async def story() -> None:
        reply: Reply[int] = Reply()
        asyncio.get_running_loop().call_soon(reply.fail, ValueError("why"))
        with pytest.raises(ValueError, match="why"):
            await reply

    asyncio.run(story())


@pytest.mark.parametrize("kind", ["resolved", "steps", "coroutine", "pending"])
def test_reply_is_awaited_whatever_resolves_it(kind: str) -> None:
    def steps() -> Generator[None, None, int]:
        yield
        return 7

    async def coroutine() -> int:
        await asyncio.sleep(0)
        return 7

    async def story() -> None:
        reply: Reply[int] = Reply()
        if kind == "resolved":
            reply = Reply.of(7)
        elif kind == "steps":
            reply = Reply.of_steps(steps())
        elif kind == "coroutine":
            reply = Reply.of_coroutine(coroutine())
        else:
            asyncio.get_running_loop().call_soon(reply.resolve, 7)
        reply.filter(lambda response: (response or 0) + 1)
        reply.filter(lambda response: (response or 0) * 10)
        assert await reply == 80

    asyncio.run(story())


def test_filter_that_fails_fails_the_reply() -> None:
    reply: Reply[int] = Reply()

    def broken(response: int | None) -> int:
        raise ZeroDivisionError

    reply.filter(broken)
    reply.resolve(7)
    assert isinstance(reply.error, ZeroDivisionError)


def test_ready_reply_is_reported_synchronously() -> None:
    reply: Reply[int] = Reply()
    reported: list[bool] = []
    reply.when_ready(lambda: reported.append(reply.is_ready))
    reply.ready([b"frame"])
    assert reported == [True]
    assert reply.frame == [b"frame"]


def test_waiting_for_a_frame_raises_the_reason_to_disconnect() -> None:
    async def story() -> None:
        reply: Reply[int] = Reply()
        asyncio.get_running_loop().call_soon(reply.disconnect, Disconnect("why"))
        with pytest.raises(Disconnect, match="why"):
            await reply.wait()

    asyncio.run(story())


def test_cancelled_reply_stops_its_work_and_reports_nothing() -> None:
    reply: Reply[int] = Reply()
    reported: list[str] = []
    reply.on_cancel = lambda: reported.append("cancelled")
    reply.on_resolved = lambda _: reported.append("resolved")
    reply.when_ready(lambda: reported.append("ready"))
    reply.cancel()
    reply.cancel()
    reply.resolve(7)
    reply.ready([b"frame"])
    assert reported == ["cancelled"]


def test_resolved_reply_that_is_cancelled_leaves_its_handler_alone() -> None:
    reply: Reply[int] = Reply()
    reported: list[str] = []
    reply.on_cancel = lambda: reported.append("cancelled")
    reply.resolve(7)
    reply.cancel()
    assert reported == []


def test_cancelled_reply_is_freed_without_a_garbage_collection() -> None:
    """Nodes run few of them, so a reply must not be part of a cycle once its client has left."""

    def cancelled() -> weakref.ref[Any]:
        reply: Reply[int] = _Weak()
        reply.on_resolved = lambda _: reply.ready(None)
        reply.when_ready(lambda: reply.cancel())
        reply.cancel()
        return weakref.ref(reply)

    gc.disable()
    try:
        assert cancelled()() is None
    finally:
        gc.enable()


class _Weak(Reply[int]):
    """A reply that can be referred to weakly."""
