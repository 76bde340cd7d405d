"""A thread pool that clients share fairly: few functions run concurrently, in round-robin order of the clients.

A client that overloads the pool, for example by guessing passwords, only delays itself. Functions of a higher priority
run first, but every eighth decision selects the longest-waiting function to prevent starvation.
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

from chronik.limits import CONCURRENT_AUTHENTICATIONS_MAX, QUEUED_AUTHENTICATIONS_MAX
from chronik.request_reply import Disconnect

T = TypeVar("T")

QUEUE_FULL_MESSAGE: Final = "too many authentications are queued"

LONGEST_WAITING_EVERY: Final = 8
"""Number of scheduling decisions after which the function that has waited longest runs, regardless of its priority."""

EVICTABLE_QUEUE_DIVISOR: Final = 8
"""Divisor of the queue's capacity. A client with more than this fraction of the queue may lose a function even in favor
of a function with lower priority."""


class Priority(IntEnum):
    """The priority of a function in the thread pool's queue; smaller values run first."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


class _Waiter(NamedTuple):
    """A queued function that is waiting for a free thread."""

    sequence: int
    """Sequence number of the function in the queue, by which the longest-waiting function is found."""
    granted: asyncio.Future[None]


class FairThreadPool:
    """A thread pool for authentication that shares its threads fairly among clients."""

    def __init__(
        self,
        executor: Executor | None = None,
        *,
        running_max: int = CONCURRENT_AUTHENTICATIONS_MAX,
        running_per_client_max: int | None = None,
        waiting_max: int = QUEUED_AUTHENTICATIONS_MAX,
    ) -> None:
        """Create a pool that runs up to `running_max` functions concurrently, `running_per_client_max` per client."""
        self._executor = executor or ThreadPoolExecutor(running_max, "authentication")
        self._max = running_max
        self._per_client_max = running_per_client_max or running_max
        self._waiting_max = waiting_max
        self._running: Counter[Hashable] = Counter()
        """Number of running functions by client."""
        self._waiting_count = 0
        self._waiting: dict[Priority, dict[Hashable, deque[_Waiter]]] = {each: {} for each in Priority}
        """Queued waiters by priority and client; clients of one priority are in round-robin order."""
        self._sequence = count()
        self._choices = 0

    async def run(self, client: Hashable, function: Callable[[], T], priority: Priority = Priority.NORMAL) -> T:
        """Wait for the client's turn, run the function in a thread, and return its result.

        Raises:
            Disconnect: Too many functions are queued.
        """
        if self._running.total() < self._max and self._running[client] < self._per_client_max:
            self._running[client] += 1
        else:
            await self._wait_for_thread_slot(client, priority)
        done: asyncio.Future[Any] = asyncio.get_running_loop().run_in_executor(self._executor, function)
        # The slot is released when the thread is free, even if the caller has stopped waiting.
        done.add_done_callback(partial(self._on_function_done, client))
        found: T = await asyncio.shield(done)
        return found

    def close(self) -> None:
        """Shut the pool down without waiting for running functions."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _wait_for_thread_slot(self, client: Hashable, priority: Priority) -> None:
        """Wait until the next function of the client may run, and count it as running."""
        if self._waiting_count >= self._waiting_max:
            self._evict_waiter(client, priority)
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[priority].setdefault(client, deque()).append(_Waiter(next(self._sequence), granted))
        self._waiting_count += 1
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._release_slot(client)  # the slot was granted, but the caller was cancelled
            raise

    def _evict_waiter(self, client: Hashable, priority: Priority) -> None:
        """Evict another client's queued function to free its place, or raise Disconnect if none may be evicted."""
        victim_priority, victim = self._choose_client_to_evict(client, priority)
        waiters = self._waiting[victim_priority][victim]
        waiter = waiters.pop()
        if not waiters:
            del self._waiting[victim_priority][victim]
        self._waiting_count -= 1
        if not waiter.granted.done():
            waiter.granted.set_exception(Disconnect(QUEUE_FULL_MESSAGE))

    def _choose_client_to_evict(self, client: Hashable, priority: Priority) -> tuple[Priority, Hashable]:
        """Return the client whose newest function is evicted in favor of the given client, and the function's priority.

        The candidate at each priority, from the lowest on, is the client with most queued functions. It is evicted
        at a lower priority than the given one; at the same priority, if it has more than the given client; and at a
        higher one, if it has a large part of the queue.

        Raises:
            Disconnect: No client qualifies, so the given client is rejected.
        """
        own = len(self._waiting[priority].get(client, ()))
        for each in reversed(Priority):
            clients = self._waiting[each]
            if not clients:
                continue
            fullest = max(clients, key=lambda key: len(clients[key]))
            limit = own + 1 if each is priority else self._waiting_max // EVICTABLE_QUEUE_DIVISOR
            if each > priority or len(clients[fullest]) > limit:
                return each, fullest
        raise Disconnect(QUEUE_FULL_MESSAGE)

    def _on_function_done(self, client: Hashable, done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            done.exception()  # retrieve it: asyncio would log an exception that the caller did not await
        self._release_slot(client)

    def _release_slot(self, client: Hashable) -> None:
        """Free the slot of a finished function, and start the next function in the queue in round-robin order."""
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        while (following := self._next()) is not None:
            priority, next_client = following
            waiters = self._waiting[priority].pop(next_client)
            waiter = waiters.popleft()
            self._waiting_count -= 1
            if waiters:
                self._waiting[priority][next_client] = waiters
            if not waiter.granted.done():
                self._running[next_client] += 1
                waiter.granted.set_result(None)
                return

    def _next(self) -> tuple[Priority, Hashable] | None:
        """Return the priority and client of the function to run next, or None if no queued function may run."""
        firsts = [
            (priority, client)
            for priority, clients in self._waiting.items()
            if (client := self._find_first_ready_client(clients)) is not None
        ]
        if not firsts:
            return None
        self._choices += 1
        if self._choices % LONGEST_WAITING_EVERY == 0:
            return min(firsts, key=lambda each: self._waiting[each[0]][each[1]][0].sequence)
        return firsts[0]

    def _find_first_ready_client(self, clients: dict[Hashable, deque[_Waiter]]) -> Hashable | None:
        """Return the first client below its limit of running functions."""
        return next((each for each in clients if self._running[each] < self._per_client_max), None)
