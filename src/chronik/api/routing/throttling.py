"""Client quotas: count a request's usage, and report the throttle time in its response.

The router uses this module only for requests of clients that have a quota.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from chronik.protocol.schema import Response
from chronik.request_reply import ConnectedClient, Reply
from chronik.scheduler import Steps, measure_loop_time
from chronik.security.quotas.limiter import QuotaUsage

T = TypeVar("T")


def handle_throttled(handle: Callable[[], Reply[Any]], usage: QuotaUsage, peer: ConnectedClient) -> Reply[Any]:
    """Handle a request, charge its processing time to the client's quota, and set the throttle time."""
    try:
        reply = handle()
    except Exception:
        _throttle_connection(usage, peer)
        raise
    if reply.is_resolved:
        _throttle_connection(usage, peer)
        reply.add_filter(lambda response: _copy_with_throttle_time(response, usage))
    elif reply.is_pipelined:
        _throttle_connection(
            usage, peer
        )  # now, because the connection handles its next requests before this one is answered
        reply.add_filter(lambda response: _copy_with_throttle_time(response, usage))
    else:
        usage.charge_request_time(time.perf_counter() - usage.started_at)
        usage.started_at = 0.0  # from now on, only the time on the event loop counts, not the time spent waiting
        if reply.coroutine is not None:
            reply.coroutine = _throttle_coroutine(reply.coroutine, usage, peer)
        elif reply.steps is not None:
            reply.steps = _throttle_steps(reply.steps, usage, peer)
        else:
            reply.add_filter(lambda response: _copy_with_throttle_time(response, usage, peer))
    return reply


async def _throttle_coroutine(
    coroutine: Coroutine[Any, Any, Response | None], usage: QuotaUsage, peer: ConnectedClient
) -> Response | None:
    try:
        response = await measure_loop_time(coroutine, usage.charge_request_time)
    finally:
        _throttle_connection(usage, peer)
    return _copy_with_throttle_time(response, usage)


def _throttle_steps(steps: Steps[Response | None], usage: QuotaUsage, peer: ConnectedClient) -> Steps[Response | None]:
    try:
        response = yield from _measure_step_time(steps, usage.charge_request_time)
    finally:
        _throttle_connection(usage, peer)
    return _copy_with_throttle_time(response, usage)


def _measure_step_time(steps: Steps[T], took: Callable[[float], None]) -> Steps[T]:
    """Run a handler's steps, and pass the event-loop time that they used to `took`."""
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


def _throttle_connection(usage: QuotaUsage, peer: ConnectedClient) -> None:
    """Charge a request's processing time to the client's quota, and throttle the connection if necessary."""
    if usage.started_at:
        usage.charge_request_time(time.perf_counter() - usage.started_at)
    peer.throttle_seconds = max(peer.throttle_seconds, usage.throttle_seconds)


def _copy_with_throttle_time(
    response: Response | None, usage: QuotaUsage, peer: ConnectedClient | None = None
) -> Response | None:
    """Return a copy of the response with its `throttle_time_ms` set.

    Throttle the connection `peer` unless it is None.

    The response is copied, because other clients may get the same object.
    """
    if peer is not None:
        _throttle_connection(usage, peer)
    milliseconds = _get_throttle_time_ms(usage)
    if response is not None and milliseconds and hasattr(response, "throttle_time_ms"):
        response = copy.copy(response)
        response.throttle_time_ms = milliseconds
    return response


def _get_throttle_time_ms(usage: QuotaUsage) -> int:
    return math.ceil(usage.throttle_seconds * 1000)
