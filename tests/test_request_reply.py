"""Replies are resolved once, report synchronously, and can be cancelled."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Generator
from typing import Any

import pytest

from chronik.request_reply import Disconnect, Reply


def test_resolved_reply_calls_back_synchronously_and_once() -> None:
    reply: Reply[int] = Reply()
    reported: list[Reply[int]] = []
    reply.on_resolved = reported.append
    reply.resolve(7)
    reply.resolve(8)
    reply.fail(ValueError())
    assert reported == [reply]
    assert reply.response == 7
    assert reply.error is None


def test_awaiting_failed_reply_raises_its_error() -> None:
    async def scenario() -> None:
        reply: Reply[int] = Reply()
        asyncio.get_running_loop().call_soon(reply.fail, ValueError("why"))
        with pytest.raises(ValueError, match="why"):
            await reply

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["resolved", "steps", "coroutine", "pending"])
def test_reply_can_be_awaited_however_it_is_resolved(kind: str) -> None:
    def steps() -> Generator[None, None, int]:
        yield
        return 7

    async def coroutine() -> int:
        await asyncio.sleep(0)
        return 7

    async def scenario() -> None:
        reply: Reply[int] = Reply()
        if kind == "resolved":
            reply = Reply.from_response(7)
        elif kind == "steps":
            reply = Reply.from_steps(steps())
        elif kind == "coroutine":
            reply = Reply.from_coroutine(coroutine())
        else:
            asyncio.get_running_loop().call_soon(reply.resolve, 7)
        reply.add_filter(lambda response: (response or 0) + 1)
        reply.add_filter(lambda response: (response or 0) * 10)
        assert await reply == 80

    asyncio.run(scenario())


def test_exception_in_filter_fails_the_reply() -> None:
    reply: Reply[int] = Reply()

    def broken(response: int | None) -> int:
        raise ZeroDivisionError

    reply.add_filter(broken)
    reply.resolve(7)
    assert isinstance(reply.error, ZeroDivisionError)


def test_ready_reply_calls_back_synchronously() -> None:
    reply: Reply[int] = Reply()
    reported: list[bool] = []
    reply.set_ready_callback(lambda: reported.append(reply.is_ready))
    reply.complete([b"frame"])
    assert reported == [True]
    assert reply.frame == [b"frame"]


def test_waiting_for_frame_raises_disconnect_reason() -> None:
    async def scenario() -> None:
        reply: Reply[int] = Reply()
        asyncio.get_running_loop().call_soon(reply.disconnect, Disconnect("why"))
        with pytest.raises(Disconnect, match="why"):
            await reply.wait_for_frame()

    asyncio.run(scenario())


def test_cancelled_reply_calls_only_cancel_callback() -> None:
    reply: Reply[int] = Reply()
    reported: list[str] = []
    reply.on_cancel = lambda: reported.append("cancelled")
    reply.on_resolved = lambda _: reported.append("resolved")
    reply.set_ready_callback(lambda: reported.append("ready"))
    reply.cancel()
    reply.cancel()
    reply.resolve(7)
    reply.complete([b"frame"])
    assert reported == ["cancelled"]


def test_cancelling_resolved_reply_does_not_call_cancel_callback() -> None:
    reply: Reply[int] = Reply()
    reported: list[str] = []
    reply.on_cancel = lambda: reported.append("cancelled")
    reply.resolve(7)
    reply.cancel()
    assert reported == []


def test_cancelled_reply_is_freed_without_garbage_collection() -> None:
    """Nodes collect garbage rarely, so a reply must not be part of a reference cycle after its client disconnected."""

    def cancelled() -> weakref.ref[Any]:
        reply: Reply[int] = _Weak()
        reply.on_resolved = lambda _: reply.complete(None)
        reply.set_ready_callback(lambda: reply.cancel())
        reply.cancel()
        return weakref.ref(reply)

    gc.disable()
    try:
        assert cancelled()() is None
    finally:
        gc.enable()


class _Weak(Reply[int]):
    """A reply that supports weak references."""
