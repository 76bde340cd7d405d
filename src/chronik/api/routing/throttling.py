"""What a request uses of its client's quotas is counted, and its answer says how long the client has to wait.

Only requests of clients that have a quota come here.
"""

from __future__ import annotations

import copy
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from chronik.api.routing.handlers import Answer, Outcome
from chronik.api.shared.context import Pipelined
from chronik.api.shared.long_answers import Long
from chronik.exchange import Peer
from chronik.protocol.schema import Response
from chronik.security.quotas.limiter import Usage


def limited(handle: Callable[[], Outcome], usage: Usage, peer: Peer) -> Outcome:
    """Handles the request, which may be answered later."""
    try:
        outcome = handle()
    except Exception:
        _wait(usage, peer)
        raise
    if isinstance(outcome, Response) or outcome is None:
        _wait(usage, peer)
        return _told(outcome, usage)
    if isinstance(outcome, Pipelined):
        _wait(usage, peer)  # from now on: the requests behind it would be handled meanwhile
        outcome.response.add_done_callback(lambda answered: _tell(answered, usage))
        return outcome
    usage.took(time.perf_counter() - usage.began)
    usage.began = 0.0  # from now on only what the loop does for it counts, and not how long it waits
    return _later(outcome, usage, peer)


async def _later(outcome: Awaitable[Answer], usage: Usage, peer: Peer) -> Answer:
    try:
        answer = await (_Timed(outcome, usage) if inspect.iscoroutine(outcome) else outcome)
    finally:
        _wait(usage, peer)
    return Long(_set(answer.response, usage)) if isinstance(answer, Long) else _told(answer, usage)


class _Timed:
    """Awaits a coroutine, and counts the time for which the loop runs it."""

    def __init__(self, coroutine: Any, usage: Usage) -> None:
        self._coroutine = coroutine
        self._usage = usage

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = lambda: self._coroutine.send(None)  # noqa: E731
        seconds = 0.0
        try:
            while True:
                began = time.perf_counter()
                try:
                    waited_for = step()
                except StopIteration as end:
                    return end.value
                finally:
                    seconds += time.perf_counter() - began
                try:
                    yield waited_for
                except BaseException as error:
                    step = _thrower(self._coroutine, error)
                else:
                    step = lambda: self._coroutine.send(None)  # noqa: E731
        finally:
            self._usage.took(seconds)


def _thrower(coroutine: Any, error: BaseException) -> Callable[[], Any]:
    return lambda: coroutine.throw(error)


def _wait(usage: Usage, peer: Peer) -> None:
    if usage.began:
        usage.took(time.perf_counter() - usage.began)
    peer.throttled_seconds = max(peer.throttled_seconds, usage.wait_seconds)


def _tell(answered: Any, usage: Usage) -> None:
    if not answered.cancelled() and answered.exception() is None and answered.result() is not None:
        answered.result().throttle_time_ms = _milliseconds(usage)


def _told(answer: Response | None, usage: Usage) -> Response | None:
    return None if answer is None else _set(answer, usage)


def _set(answer: Response, usage: Usage) -> Response:
    """An answer may be one that others are given, too."""
    milliseconds = _milliseconds(usage)
    if milliseconds and hasattr(answer, "throttle_time_ms"):
        answer = copy.copy(answer)
        answer.throttle_time_ms = milliseconds
    return answer


def _milliseconds(usage: Usage) -> int:
    return math.ceil(usage.wait_seconds * 1000)
