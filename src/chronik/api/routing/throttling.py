"""What a request uses of its client's quotas is counted, and its answer says how long the client has to wait.

Only requests of clients that have a quota come here.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from chronik.exchange import Peer, Reply
from chronik.protocol.schema import Response
from chronik.scheduler import Steps, timed
from chronik.security.quotas.limiter import Usage

T = TypeVar("T")


def limited(handle: Callable[[], Reply[Any]], usage: Usage, peer: Peer) -> Reply[Any]:
    """Handle the request, count the time that it takes, and report the wait in its response."""
    try:
        reply = handle()
    except Exception:
        _wait(usage, peer)
        raise
    if reply.is_resolved:
        _wait(usage, peer)
        reply.filter(lambda response: _with_wait(response, usage))
    elif reply.is_pipelined:
        _wait(usage, peer)  # now: the requests behind it are handled before it is answered
        reply.filter(lambda response: _with_wait(response, usage))
    else:
        usage.took(time.perf_counter() - usage.began)
        usage.began = 0.0  # from now on, the time in which the loop works for it counts, and not the time it waits
        if reply.coroutine is not None:
            reply.coroutine = _limited_coroutine(reply.coroutine, usage, peer)
        elif reply.steps is not None:
            reply.steps = _limited_steps(reply.steps, usage, peer)
        else:
            reply.filter(lambda response: _with_wait(response, usage, peer))
    return reply


async def _limited_coroutine(
    coroutine: Coroutine[Any, Any, Response | None], usage: Usage, peer: Peer
) -> Response | None:
    try:
        response = await timed(coroutine, usage.took)
    finally:
        _wait(usage, peer)
    return _with_wait(response, usage)


def _limited_steps(steps: Steps[Response | None], usage: Usage, peer: Peer) -> Steps[Response | None]:
    try:
        response = yield from _timed_steps(steps, usage.took)
    finally:
        _wait(usage, peer)
    return _with_wait(response, usage)


def _timed_steps(steps: Steps[T], took: Callable[[float], None]) -> Steps[T]:
    value: Any = None
    seconds = 0.0
    try:
        while True:
            began = time.perf_counter()
            try:
                function = steps.send(value)
            except StopIteration as stop:
                result: T = stop.value
                return result
            finally:
                seconds += time.perf_counter() - began
            value = yield function
    finally:
        took(seconds)


def _wait(usage: Usage, peer: Peer) -> None:
    if usage.began:
        usage.took(time.perf_counter() - usage.began)
    peer.throttled_seconds = max(peer.throttled_seconds, usage.wait_seconds)


def _with_wait(response: Response | None, usage: Usage, peer: Peer | None = None) -> Response | None:
    """Return the response with the time for which its client is throttled, and throttle `peer`.

    Other clients may get the same response object, so it is copied.
    """
    if peer is not None:
        _wait(usage, peer)
    milliseconds = _milliseconds(usage)
    if response is not None and milliseconds and hasattr(response, "throttle_time_ms"):
        response = copy.copy(response)
        response.throttle_time_ms = milliseconds
    return response


def _milliseconds(usage: Usage) -> int:
    return math.ceil(usage.wait_seconds * 1000)
