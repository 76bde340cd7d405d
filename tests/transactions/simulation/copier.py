"""A consume-transform-produce application with one transactional id, often with more than one instance at a time.

Each instance continues at the group's committed offset.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from chronik.metadata.records import Topic
from chronik.protocol.errors import ErrorCode
from tests.chaos.history import Place
from tests.transactions.history import OffsetSeen, Source

from . import requests
from .producer import MustAbort, ProducerFailed, TransactionalProducer
from .requests import OLD_VERSIONS, V1, V2, Versions

if TYPE_CHECKING:
    from .world import TransactionWorld

INPUT: Final = "input"
OUTPUT: Final = "output"
LIVES_AT_ONCE_MAX: Final = 3


class Copier:
    """An application that copies records exactly once."""

    def __init__(self, world: TransactionWorld, number: int, versions: tuple[Versions, ...]) -> None:
        self._world = world
        self._chance = world.chance
        self._id = f"copier-{number}"
        self.group = f"group-{number}"
        self._versions = versions
        self._timeout_ms = world.chance.choice((1500, 4000, 10_000))
        self._lives = 0
        self._running: list[asyncio.Task[None]] = []

    @property
    def is_done(self) -> bool:
        return all(task.done() for task in self._running)

    async def run(self) -> None:
        """Start an instance when none is running, and sometimes a second one."""
        while not self._world.is_finishing:
            self._running = [task for task in self._running if not task.done() or task.result()]
            if not self._running or (self._chance.random() < 0.15 and len(self._running) < LIVES_AT_ONCE_MAX):
                self._running.append(self._world.loop.create_task(self._run_instance()))
            until = self._world.loop.time() + self._chance.uniform(0.2, 5.0)
            while self._world.loop.time() < until and not self._world.is_finishing and not self.is_done:
                await asyncio.sleep(0.1)
        for task in self._running:
            await task

    async def _run_instance(self) -> None:
        self._lives += 1
        versions = self._chance.choice(self._versions)
        producer = TransactionalProducer(self._world, self._id, f"{self._id}.{self._lives}", versions, self._timeout_ms)
        self._world.counts["instances"] += 1
        try:
            await producer.init()
            position = await self._position(producer.name)
            while not self._world.is_finishing:
                await asyncio.sleep(self._chance.uniform(0.0, 0.2))
                position = await self._run_transaction(producer, position)
        except ProducerFailed as end:
            self._world.ended(str(end))
        finally:
            producer.record_failure()

    async def _run_transaction(self, producer: TransactionalProducer, position: int) -> int:
        """Copy records in one transaction and return the group's position afterwards."""
        producer.begin()
        self._world.counts["begun"] += 1
        end = position + self._chance.randint(0, 3)
        try:
            await self._fill(producer, position, end)
            if self._chance.random() < 0.8:
                await producer.commit()
                self._world.counts["committed"] += 1
                return end
            await producer.abort()
        except MustAbort as reason:
            self._world.note("must abort", producer.name, str(reason))
            self._world.counts["broken off"] += 1
            await producer.abort(needs_epoch=True)
        self._world.counts["aborted"] += 1
        return position

    async def _fill(self, producer: TransactionalProducer, position: int, end: int) -> None:
        world, chance = self._world, self._chance
        output = world.topic(OUTPUT)
        for offset in range(position, end):
            source = Source(self.group, Place(INPUT, 0), offset)
            await producer.send(output, chance.randrange(len(output.partitions)), source)
            await self._sleep_sometimes()
        for _ in range(chance.randint(end == position, 2)):
            topic: Topic | None = world.some_topic()
            if topic is not None:
                await producer.send(topic, chance.randrange(len(topic.partitions)))
                await self._sleep_sometimes()
        if end > position:
            await producer.stage(self.group, INPUT, end)

    async def _sleep_sometimes(self) -> None:
        """Wait, now and then for longer than the transaction timeout."""
        if not self._world.is_calm and self._chance.random() < 0.03:
            self._world.counts["slept"] += 1
            await asyncio.sleep(1.2 * self._timeout_ms / 1000)
        elif self._chance.random() < 0.5:
            await asyncio.sleep(self._chance.uniform(0.0, 0.1))

    async def _position(self, name: str, *, is_final: bool = False) -> int:
        """Return the group's committed offset.

        Raises:
            AtItsEnd: No response in time.
        """
        world = self._world
        deadline = world.loop.time() + 20.0
        while world.loop.time() < deadline:
            node, asked_at = self._chance.choice(sorted(world.hosts)), world.loop.time()
            answer = await world.wire.send_request(node, requests.fetch_offset(self.group, INPUT))
            if answer is not None and answer[0] is ErrorCode.NONE:
                world.tell(
                    OffsetSeen(
                        reader=name,
                        node=node,
                        asked_at=asked_at,
                        place=Place(INPUT, 0),
                        group=self.group,
                        offset=answer[1],
                        is_final=is_final,
                    )
                )
                return max(answer[1], 0)
            await asyncio.sleep(self._chance.uniform(0.01, 0.2))
        raise ProducerFailed("OffsetFetch: no response")

    async def last_position(self) -> int:
        return await self._position("final", is_final=True)


CLIENT_VERSIONS: Final = ((V1,), (V2,), (OLD_VERSIONS, V1, V2))
"""The kinds of clients: v1, v2, and one that is replaced by newer and older versions of itself."""
