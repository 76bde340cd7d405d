"""Large answers wait while there is no memory for them: until clients have read enough of other answers.

Clients that do not read are closed after some seconds, so nearly all answers are sent in the end. They are in memory
meanwhile: beyond what may be held so, or for longer, a connection ends.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, NamedTuple

from chronik.exchange import Disconnect, Outbox, Reply, Response
from chronik.limits import (
    ANSWER_HELD_SECONDS_MAX,
    ANSWERS_HELD_BYTES_MAX,
    RESPONSE_BYTES_LEAST,
    RESPONSES_BYTES_MAX,
)

NO_MEMORY = "there is no memory for its answer: those of others are not read"


class _Held(NamedTuple):
    frame: Response
    size: int
    timer: asyncio.TimerHandle


class HeldAnswers:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._held: dict[Reply[Any], _Held] = {}
        self._bytes = 0
        outbox.on_read = self._let_go

    def must_wait(self, frame: Response) -> bool:
        return self._outbox.unsent_bytes > RESPONSES_BYTES_MAX and _size(frame) > RESPONSE_BYTES_LEAST

    def hold(self, frame: Response, reply: Reply[Any]) -> None:
        """Make the reply ready when there is memory, and disconnect its client if there is none in time."""
        size = _size(frame)
        if self._bytes + size > ANSWERS_HELD_BYTES_MAX:
            reply.disconnect(Disconnect(NO_MEMORY))
            return
        timer = asyncio.get_running_loop().call_later(ANSWER_HELD_SECONDS_MAX, self._give_up, reply)
        self._held[reply] = _Held(frame, size, timer)
        self._bytes += size
        reply.on_cancel = partial(self._forget, reply)

    def _let_go(self) -> None:
        """Release replies while there is memory. What is sent now counts as unsent from the next iteration on, so it is
        counted here as well."""
        room = RESPONSES_BYTES_MAX - self._outbox.unsent_bytes
        while self._held and room >= 0:
            reply, held = next(iter(self._held.items()))
            room -= held.size
            self._forget(reply)
            # In an iteration of its own: the caller is a connection in the middle of sending.
            asyncio.get_running_loop().call_soon(_make_ready, reply, held.frame)

    def _give_up(self, reply: Reply[Any]) -> None:
        self._forget(reply)
        reply.disconnect(Disconnect(NO_MEMORY))

    def _forget(self, reply: Reply[Any]) -> None:
        held = self._held.pop(reply, None)
        if held is not None:
            self._bytes -= held.size
            held.timer.cancel()


def _make_ready(reply: Reply[Any], frame: Response) -> None:
    if not reply.is_cancelled:
        reply.ready(frame)


def _size(frame: Response) -> int:
    return sum(map(len, frame or ()))
