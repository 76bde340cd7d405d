"""Large answers wait while there is no memory for them: until clients have read enough of other answers.

Clients that do not read are closed after some seconds, so nearly all answers are sent in the end. They are in memory
meanwhile: beyond what may be held so, or for longer, a connection ends.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from chronik.exchange import Disconnect, Outbox, Response
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
        self._held: dict[asyncio.Future[Response], _Held] = {}
        self._bytes = 0
        outbox.on_read = self._let_go

    def must_wait(self, frame: Response) -> bool:
        return self._outbox.unsent_bytes > RESPONSES_BYTES_MAX and _size(frame) > RESPONSE_BYTES_LEAST

    def hold(self, frame: Response, answer: asyncio.Future[Response]) -> None:
        """The answer is set when there is room; Disconnect is its exception when there is none in time."""
        size = _size(frame)
        if self._bytes + size > ANSWERS_HELD_BYTES_MAX:
            answer.set_exception(Disconnect(NO_MEMORY))
            return
        timer = asyncio.get_running_loop().call_later(ANSWER_HELD_SECONDS_MAX, self._give_up, answer)
        self._held[answer] = _Held(frame, size, timer)
        self._bytes += size
        answer.add_done_callback(self._forget)  # also when its connection is gone

    def _let_go(self) -> None:
        """What is sent now counts as unsent only from the loop's next turn on, so it is counted here as well."""
        room = RESPONSES_BYTES_MAX - self._outbox.unsent_bytes
        while self._held and room >= 0:
            answer, held = next(iter(self._held.items()))
            room -= held.size
            self._forget(answer)
            if not answer.done():
                answer.set_result(held.frame)

    def _give_up(self, answer: asyncio.Future[Response]) -> None:
        self._forget(answer)
        if not answer.done():
            answer.set_exception(Disconnect(NO_MEMORY))

    def _forget(self, answer: asyncio.Future[Response]) -> None:
        held = self._held.pop(answer, None)
        if held is not None:
            self._bytes -= held.size
            held.timer.cancel()


def _size(frame: Response) -> int:
    return sum(map(len, frame or ()))
