"""Deferred responses: large responses that wait until clients have read enough of the earlier ones.

Clients that do not read are disconnected after a few seconds, so nearly all deferred responses are sent eventually.
They are kept in memory until then; a response that exceeds the memory limit or the time limit closes its connection.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, NamedTuple

from chronik.limits import HELD_RESPONSE_SECONDS_MAX, HELD_RESPONSES_BYTES_MAX, RESPONSE_BYTES_MIN, RESPONSES_BYTES_MAX
from chronik.request_reply import Disconnect, Reply, ResponseFrame, UnsentByteCounter

NO_MEMORY = "no memory for the response: clients have too many unread responses"


class _DeferredResponse(NamedTuple):
    frame: ResponseFrame
    size: int
    timer: asyncio.TimerHandle


class DeferredResponses:
    """A queue of encoded responses that are sent when memory is available."""

    def __init__(self, outbox: UnsentByteCounter) -> None:
        self._outbox = outbox
        self._deferred: dict[Reply[Any], _DeferredResponse] = {}
        self._bytes = 0
        outbox.on_decrease = self._release_responses

    def must_defer_response(self, frame: ResponseFrame) -> bool:
        """Return whether a large response must wait until earlier responses have been sent."""
        return self._outbox.unsent_bytes > RESPONSES_BYTES_MAX and _size(frame) > RESPONSE_BYTES_MIN

    def defer(self, frame: ResponseFrame, reply: Reply[Any]) -> None:
        """Queue a large response until memory is available, and disconnect the client after a timeout."""
        size = _size(frame)
        if self._bytes + size > HELD_RESPONSES_BYTES_MAX:
            reply.disconnect(Disconnect(NO_MEMORY))
            return
        timer = asyncio.get_running_loop().call_later(HELD_RESPONSE_SECONDS_MAX, self._expire_deferred_response, reply)
        self._deferred[reply] = _DeferredResponse(frame, size, timer)
        self._bytes += size
        reply.on_cancel = partial(self._remove_deferred_response, reply)

    def _release_responses(self) -> None:
        """Send the queued responses, oldest first, while memory is available.

        A released response is counted here, because the outbox counts it only from the next event-loop iteration on.
        """
        bytes_left = RESPONSES_BYTES_MAX - self._outbox.unsent_bytes
        while self._deferred and bytes_left >= 0:
            reply, held = next(iter(self._deferred.items()))
            bytes_left -= held.size
            self._remove_deferred_response(reply)
            # Not in this event-loop iteration: the caller is a connection in the middle of sending.
            asyncio.get_running_loop().call_soon(_complete_reply_unless_cancelled, reply, held.frame)

    def _expire_deferred_response(self, reply: Reply[Any]) -> None:
        self._remove_deferred_response(reply)
        reply.disconnect(Disconnect(NO_MEMORY))

    def _remove_deferred_response(self, reply: Reply[Any]) -> None:
        held = self._deferred.pop(reply, None)
        if held is not None:
            self._bytes -= held.size
            held.timer.cancel()


def _complete_reply_unless_cancelled(reply: Reply[Any], frame: ResponseFrame) -> None:
    if not reply.is_cancelled:
        reply.complete(frame)


def _size(frame: ResponseFrame) -> int:
    return sum(map(len, frame or ()))
