"""A thread pool that is divided between clients: few functions run at once, and clients take turns.

A client that asks for more than the pool can do, such as one that tries passwords at full speed, waits for itself.
Functions of a higher priority run first, but every eighth choice is made by waiting time, so that no function starves.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, ThreadPoolExecutor
from enum import IntEnum
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar

from chronik.exchange import Disconnect
from chronik.limits import AUTHENTICATIONS_AT_WORK_MAX, AUTHENTICATIONS_WAITING_MAX

T = TypeVar("T")

TOO_MANY: Final = "too many others wait to be authenticated"

LONGEST_WAITING_EVERY: Final = 8
"""Of so many choices, one is made by waiting time instead of priority."""

HOLDINGS_SHARE: Final = 8
"""A client that has more than this part of all places loses one even to a function of a lower priority."""


class Priority(IntEnum):
    """The order of functions that wait for a thread: smaller values run first."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


class _Turn(NamedTuple):
    """A function that waits for a thread."""

    number: int
    """Counts all functions that have waited: the smallest number has waited longest."""
    granted: asyncio.Future[None]


class Work:
    def __init__(
        self,
        executor: Executor | None = None,
        *,
        running_max: int = AUTHENTICATIONS_AT_WORK_MAX,
        running_per_client_max: int | None = None,
        waiting_max: int = AUTHENTICATIONS_WAITING_MAX,
    ) -> None:
        """Run up to `running_max` functions at once, `running_per_client_max` of one client."""
        self._executor = executor or ThreadPoolExecutor(running_max, "authentication")
        self._max = running_max
        self._per_client_max = running_per_client_max or running_max
        self._waiting_max = waiting_max
        self._running: Counter[Hashable] = Counter()
        """By client."""
        self._waiting_count = 0
        self._waiting: dict[Priority, dict[Hashable, deque[_Turn]]] = {each: {} for each in Priority}
        """By priority and client; the first client of a priority is next."""
        self._numbers = count()
        self._choices = 0

    async def do(self, client: Hashable, function: Callable[[], T], priority: Priority = Priority.NORMAL) -> T:
        """Return the function's result, when it was the client's turn. Raises Disconnect when too many wait."""
        if self._running.total() < self._max and self._running[client] < self._per_client_max:
            self._running[client] += 1
        else:
            await self._wait_for_turn(client, priority)
        done: asyncio.Future[Any] = asyncio.get_running_loop().run_in_executor(self._executor, function)
        # Not before the thread is free, also if the caller does not wait for it any more.
        done.add_done_callback(partial(self._finished, client))
        found: T = await asyncio.shield(done)
        return found

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _wait_for_turn(self, client: Hashable, priority: Priority) -> None:
        """Wait until the client's next function may run; it counts as running then."""
        if self._waiting_count >= self._waiting_max:
            self._make_room(client, priority)
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[priority].setdefault(client, deque()).append(_Turn(next(self._numbers), granted))
        self._waiting_count += 1
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._release(client)  # it was this one's turn, and its caller has gone
            raise

    def _make_room(self, client: Hashable, priority: Priority) -> None:
        """Reject the latest function of another client. Raises Disconnect if the new function is to be rejected."""
        at, other = self._victim(client, priority)
        turns = self._waiting[at][other]
        turn = turns.pop()
        if not turns:
            del self._waiting[at][other]
        self._waiting_count -= 1
        if not turn.granted.done():
            turn.granted.set_exception(Disconnect(TOO_MANY))

    def _victim(self, client: Hashable, priority: Priority) -> tuple[Priority, Hashable]:
        """Return the client that loses a place: at the lowest priority below the new function's the one that has most;
        else one that has more than its client at the same priority, or a large part of all places at a higher one.

        Raises:
            Disconnect: there is no such client.
        """
        own = len(self._waiting[priority].get(client, ()))
        for each in reversed(Priority):
            clients = self._waiting[each]
            if not clients:
                continue
            fullest = max(clients, key=lambda key: len(clients[key]))
            count = len(clients[fullest])
            if each > priority or count > (own + 1 if each is priority else self._waiting_max // HOLDINGS_SHARE):
                return each, fullest
        raise Disconnect(TOO_MANY)

    def _finished(self, client: Hashable, done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            done.exception()  # the caller has it; if there is none any more, it is not missed
        self._release(client)

    def _release(self, client: Hashable) -> None:
        """Let the next client run a function; it is the last one in line for its next turn."""
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        while (following := self._next()) is not None:
            priority, next_client = following
            turns = self._waiting[priority].pop(next_client)
            turn = turns.popleft()
            self._waiting_count -= 1
            if turns:
                self._waiting[priority][next_client] = turns
            if not turn.granted.done():
                self._running[next_client] += 1
                turn.granted.set_result(None)
                return

    def _next(self) -> tuple[Priority, Hashable] | None:
        """Return the client to run next, and at which priority."""
        firsts = [
            (priority, client)
            for priority, clients in self._waiting.items()
            if (client := self._first_ready(clients)) is not None
        ]
        if not firsts:
            return None
        self._choices += 1
        if self._choices % LONGEST_WAITING_EVERY == 0:
            return min(firsts, key=lambda each: self._waiting[each[0]][each[1]][0].number)
        return firsts[0]

    def _first_ready(self, clients: dict[Hashable, deque[_Turn]]) -> Hashable | None:
        """Return the first client that may run another function."""
        return next((each for each in clients if self._running[each] < self._per_client_max), None)
