"""A thread pool that clients share fairly: few functions run concurrently, in round-robin order of the clients.

A client that submits more than the pool can do, such as one that guesses passwords, only delays itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from chronik.exchange import Disconnect
from chronik.limits import AUTHENTICATIONS_AT_WORK_MAX, AUTHENTICATIONS_WAITING_MAX

T = TypeVar("T")

TOO_MANY: Final = "too many authentications are queued"


class Work:
    """A fair thread pool for authentication."""

    def __init__(
        self,
        executor: Executor | None = None,
        *,
        running_max: int = AUTHENTICATIONS_AT_WORK_MAX,
        running_per_client_max: int | None = None,
        waiting_max: int = AUTHENTICATIONS_WAITING_MAX,
    ) -> None:
        """Create a pool that runs up to `running_max` functions at once, `running_per_client_max` of one client."""
        self._executor = executor or ThreadPoolExecutor(running_max, "authentication")
        self._max = running_max
        self._per_client_max = running_per_client_max or running_max
        self._waiting_max = waiting_max
        self._running: Counter[Hashable] = Counter()
        """Number of running functions by client."""
        self._waiting_count = 0
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """Queued waiters by client, in round-robin order."""

    async def do(self, client: Hashable, function: Callable[[], T]) -> T:
        """Run the function in a thread when it is the client's turn, and return its result.

        Raises:
            Disconnect: Too many functions are queued.
        """
        if self._running.total() < self._max and self._running[client] < self._per_client_max:
            self._running[client] += 1
        else:
            await self._wait_for_turn(client)
        done: asyncio.Future[Any] = asyncio.get_running_loop().run_in_executor(self._executor, function)
        # The slot is released when the thread is free, even if the caller has stopped waiting.
        done.add_done_callback(partial(self._finished, client))
        found: T = await asyncio.shield(done)
        return found

    def close(self) -> None:
        """Shut the pool down without waiting for running functions."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _wait_for_turn(self, client: Hashable) -> None:
        """Wait until the client's next function may run; it then counts as running."""
        if self._waiting_count >= self._waiting_max:
            self._evict_waiter(client)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self._waiting_count += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(client)  # the slot was granted, but the caller was cancelled
            raise

    def _evict_waiter(self, client: Hashable) -> None:
        """Reject the newest function of the client with most, or raise Disconnect if that is the given client."""
        if not self._waiting:
            raise Disconnect(TOO_MANY)
        fullest = max(self._waiting, key=lambda each: len(self._waiting[each]))
        if len(self._waiting[fullest]) <= len(self._waiting.get(client, ())) + 1:
            raise Disconnect(TOO_MANY)
        turns = self._waiting[fullest]
        turn = turns.pop()
        if not turns:
            del self._waiting[fullest]
        self._waiting_count -= 1
        if not turn.done():
            turn.set_exception(Disconnect(TOO_MANY))

    def _finished(self, client: Hashable, done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            done.exception()  # retrieve it: asyncio would log an exception that the caller did not await
        self._release(client)

    def _release(self, client: Hashable) -> None:
        """Release a slot and let the next client run a function; that client then moves to the end of the line."""
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        while (following := self._next()) is not None:
            turns = self._waiting.pop(following)
            turn = turns.popleft()
            self._waiting_count -= 1
            if turns:
                self._waiting[following] = turns
            if not turn.done():
                self._running[following] += 1
                turn.set_result(None)
                return

    def _next(self) -> Hashable | None:
        return next((each for each in self._waiting if self._running[each] < self._per_client_max), None)
