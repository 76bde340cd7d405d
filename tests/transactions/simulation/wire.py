"""The connections between clients and nodes: requests and responses may be late, duplicated or lost."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from .process import TransactionalProcess

if TYPE_CHECKING:
    from .world import TransactionWorld

T = TypeVar("T")

PATIENCE_SECONDS: Final = 2.0
LATE_SECONDS_MAX: Final = 6.0
"""The maximum delay. After that, the client has timed out and may be in its next transaction."""

_NOBODYS_CONTEXT: Final = contextvars.Context()


class ClientNetwork:
    """The simulated network between clients and nodes."""

    def __init__(self, world: TransactionWorld) -> None:
        self._world = world
        self.late = world.chance.choice((0.0, 0.02, 0.1))
        self.twice = world.chance.choice((0.0, 0.06))

    async def send_request(
        self,
        node: int,
        work: Callable[[TransactionalProcess], Awaitable[T]],
        look: Callable[[], None] = lambda: None,
    ) -> T | None:
        """Send a request and return the response, or None after a timeout.

        `look` is called when the request reaches the node and when it is done: the client may have moved on by then.
        """
        world = self._world
        process = world.hosts[node].process if node in world.hosts else None
        if not isinstance(process, TransactionalProcess) or not process.is_booted:
            await asyncio.sleep(world.network.delay())
            return None
        answer: asyncio.Future[T] = world.loop.create_future()
        chance = 1.0 if world.is_calm else world.chance.random()
        if chance >= world.network.loss:
            arrive = partial(self._deliver, process, work, look, answer)
            world.loop.call_later(self._delay(), arrive, context=process.life.context)
            if not world.is_calm and world.chance.random() < self.twice:
                world.loop.call_later(LATE_SECONDS_MAX * world.chance.random(), arrive, context=process.life.context)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await answer
        except TimeoutError:
            return None

    def _delay(self) -> float:
        world = self._world
        if not world.is_calm and world.chance.random() < self.late:
            return world.chance.uniform(0, LATE_SECONDS_MAX)
        return world.network.delay()

    def _deliver(
        self,
        process: TransactionalProcess,
        work: Callable[[TransactionalProcess], Awaitable[T]],
        look: Callable[[], None],
        answer: asyncio.Future[T],
    ) -> None:
        self._world.loop.create_task(self._serve(process, work, look, answer))

    async def _serve(
        self,
        process: TransactionalProcess,
        work: Callable[[TransactionalProcess], Awaitable[T]],
        look: Callable[[], None],
        answer: asyncio.Future[T],
    ) -> None:
        look()
        result = await work(process)
        look()
        world = self._world
        if not world.is_calm and world.chance.random() < world.network.loss:
            return
        world.loop.call_later(world.network.delay(), _set_result, answer, result, context=_NOBODYS_CONTEXT)


def _set_result(answer: asyncio.Future[T], result: T) -> None:
    if not answer.done():
        answer.set_result(result)
