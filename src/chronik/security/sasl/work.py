"""Threads for what takes milliseconds, such as salting a password: few run at once, and addresses take turns.

So whoever tries passwords at full speed keeps a processor busy, and waits for himself; the loop and others go on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from chronik.exchange import Disconnect
from chronik.limits import AUTHENTICATIONS_AT_WORK_MAX, AUTHENTICATIONS_WAITING_MAX

T = TypeVar("T")

TOO_MANY: Final = "too many others wait to be authenticated"


class Work:
    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor or ThreadPoolExecutor(AUTHENTICATIONS_AT_WORK_MAX, "authentication")
        self._running = 0
        self._waiting_count = 0
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By address; the first is next."""

    async def do(self, host: str, function: Callable[[], T]) -> T:
        """Returns its result, when it was the host's turn. Raises Disconnect when too many wait."""
        if self._running >= AUTHENTICATIONS_AT_WORK_MAX:
            await self._wait_for_turn(host)
        else:
            self._running += 1
        done: asyncio.Future[Any] = asyncio.get_running_loop().run_in_executor(self._executor, function)
        done.add_done_callback(self._finished)  # not before the thread is free, also if nobody waits for it any more
        found: T = await asyncio.shield(done)
        return found

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _wait_for_turn(self, host: str) -> None:
        if self._waiting_count >= AUTHENTICATIONS_WAITING_MAX:
            self._make_room(host)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, deque()).append(turn)
        self._waiting_count += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._hand_on()  # it was this one's turn, and it has gone
            raise

    def _make_room(self, host: str) -> None:
        """Sends away who came last of the address that has most. Raises Disconnect if the newcomer's is that."""
        fullest = max(self._waiting, key=lambda each: len(self._waiting[each]))
        if len(self._waiting[fullest]) <= len(self._waiting.get(host, ())) + 1:
            raise Disconnect(TOO_MANY)
        turn = self._waiting[fullest].pop()
        self._waiting_count -= 1
        if not turn.done():
            turn.set_exception(Disconnect(TOO_MANY))

    def _finished(self, done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            done.exception()  # whoever waits for it has it, and if nobody does it is not missed
        self._hand_on()

    def _hand_on(self) -> None:
        """Gives the place to the next address; it stands last in line for its next turn."""
        while self._waiting:
            host = next(iter(self._waiting))
            turns = self._waiting.pop(host)
            turn = turns.popleft()
            self._waiting_count -= 1
            if turns:
                self._waiting[host] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._running -= 1
