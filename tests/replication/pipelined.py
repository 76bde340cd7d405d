"""Idempotent producers as in librdkafka and Java, with several batches in flight, which are retried in order.

Requests on one connection arrive and are answered in order until it breaks. Unanswered requests may or may not have
arrived, or may still arrive. Batches keep their sequence numbers when they are retried.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from chronik.protocol.batch import parse_header
from chronik.protocol.errors import ErrorCode
from chronik.protocol.records import Record, encode_batch
from tests.replication.checker import Key, Violation
from tests.replication.host import Process

if TYPE_CHECKING:
    from tests.replication.simulation import ReplicationSimulation

ALL: Final = -1
BATCHES_UNDER_WAY_MAX: Final = 5
"""Maximum number of batches in flight: the number of batches that a broker remembers per producer."""

Answer = tuple[ErrorCode, int]
ResponseCallback = Callable[[Answer], None]

_NOBODYS_CONTEXT: Final = contextvars.Context()
_ORDERLY_SECONDS: Final = 1e-6
"""Delay between two arrivals on a connection, because timers with equal deadlines fire in any order."""


class Connection:
    """A client's connection to one run of a node."""

    def __init__(self, world: ReplicationSimulation, process: Process) -> None:
        self._world = world
        self._process = process
        self._arrival = self._return = 0.0
        self._waiting: deque[_Asked] = deque()
        self.is_broken = False

    def ask(self, key: Key, data: bytes, told: ResponseCallback) -> None:
        """Send a request; `told` receives the response, or REQUEST_TIMED_OUT if the connection breaks."""
        world = self._world
        asked = _Asked(told)
        self._waiting.append(asked)
        world.loop.call_later(world.chance.uniform(0.5, 4.0), self._give_up, asked)
        if not world.is_calm and world.chance.random() < world.network.loss:
            world.loop.call_later(world.network.delay(), self.break_off)
        if not self.is_broken:
            self._arrival = max(self._arrival + _ORDERLY_SECONDS, world.loop.time() + world.network.delay())
            arrive = partial(self._arrive, key, data, asked)
            world.loop.call_at(self._arrival, arrive, context=self._process.life.context)

    def _arrive(self, key: Key, data: bytes, asked: _Asked) -> None:
        work = self._world.loop.create_task(self._process.produce(*key, data, ALL))
        work.add_done_callback(partial(self._answered, asked))

    def _answered(self, asked: _Asked, work: asyncio.Task[Answer]) -> None:
        if work.cancelled():
            return
        asked.answer = work.result()
        while self._waiting and self._waiting[0].answer is not None:
            self._return_answer(self._waiting.popleft())

    def _return_answer(self, asked: _Asked) -> None:
        world = self._world
        self._return = max(self._return + _ORDERLY_SECONDS, world.loop.time() + world.network.delay())
        world.loop.call_at(self._return, asked.tell, context=_NOBODYS_CONTEXT)

    def _give_up(self, asked: _Asked) -> None:
        if not asked.is_told:
            self.break_off()

    def break_off(self) -> None:
        """Close the connection on the client's side. Pending requests may still arrive."""
        self.is_broken = True
        while self._waiting:
            asked = self._waiting.popleft()
            asked.answer = ErrorCode.REQUEST_TIMED_OUT, -1
            asked.tell()


@dataclass(eq=False)
class _Asked:
    told: ResponseCallback
    answer: Answer | None = None
    is_told: bool = False

    def tell(self) -> None:
        if not self.is_told:
            assert self.answer is not None
            self.is_told = True
            self.told(self.answer)


@dataclass(eq=False)
class Batch:
    sequence: int
    data: bytes
    is_under_way: bool = False
    was_sent: bool = False


class PartitionStream:
    """The batches that a producer sends to one partition."""

    def __init__(self, world: ReplicationSimulation, producer: int, key: Key, *, retries_alone: bool) -> None:
        """Create a stream. `retries_alone` retries one batch at a time as in Java, instead of all as in librdkafka.

        Both first wait for the responses to all requests in flight.
        """
        self._world = world
        self._chance: random.Random = world.chance
        self._producer = producer
        self.key = key
        self._retries_alone = retries_alone
        self._next_sequence = 0
        self._sent = 0
        self.unacknowledged: list[Batch] = []
        self._connection: Connection | None = None
        self._moved = asyncio.Event()
        self.failure: Violation | None = None

    def add(self) -> None:
        if len(self.unacknowledged) < BATCHES_UNDER_WAY_MAX:
            count = self._chance.randint(1, 3)
            self._sent += 1
            values = b"%d/%d" % (self._producer, self._sent)
            records = [Record(offset, 0, None, values) for offset in range(count)]
            data = encode_batch(
                records, producer_id=self._producer, producer_epoch=0, base_sequence=self._next_sequence
            )
            self.unacknowledged.append(Batch(self._next_sequence, data))
            self._next_sequence += count
            self._moved.set()

    async def run(self) -> None:
        while self._world.exists(self.key):
            if self.failure is not None:
                raise self.failure
            self._moved.clear()
            connection = self._connected()
            due = self._due() if connection is not None else []
            for batch in due:
                assert connection is not None
                batch.is_under_way = batch.was_sent = True
                connection.ask(self.key, batch.data, partial(self._answered, batch, connection))
            try:
                async with asyncio.timeout(self._chance.uniform(0.02, 0.3)):
                    await self._moved.wait()
            except TimeoutError:
                continue
        self.unacknowledged.clear()

    def _connected(self) -> Connection | None:
        """Return a connection to the leader; clients change leaders only after all responses have arrived."""
        if self._connection is None or self._connection.is_broken:
            if any(batch.is_under_way for batch in self.unacknowledged):
                return None
            process = self._world.believed_leader(self.key)
            self._connection = None if process is None else Connection(self._world, process)
        return self._connection

    def _due(self) -> list[Batch]:
        waiting = [batch for batch in self.unacknowledged if not batch.is_under_way]
        if not any(batch.was_sent for batch in waiting):
            return waiting
        if len(waiting) < len(self.unacknowledged):
            return []
        return waiting[:1] if self._retries_alone else waiting

    def _answered(self, batch: Batch, connection: Connection, answer: Answer) -> None:
        code, offset = answer
        batch.is_under_way = False
        if code is ErrorCode.NONE:
            self._moved.set()  # `run` retries rejected batches after all responses have arrived, as all clients do
            if batch in self.unacknowledged:  # its topic may have been deleted
                self.unacknowledged.remove(batch)
            self._check(lambda: self._world.checker.on_acknowledged(self.key, offset, parse_header(batch.data).crc))
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._was_deleted(batch):
            self.unacknowledged.remove(batch)
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            before = f"batches before sequence {batch.sequence} of producer {self._producer}"
            self.failure = Violation(f"{self.key}: {before} are reported as missing")
        elif connection is self._connection and code is not ErrorCode.NOT_ENOUGH_REPLICAS:
            self._connection = None  # find the leader again; pending requests are still answered

    def _was_deleted(self, batch: Batch) -> bool:
        """Return whether the batch was stored and deleted before its acknowledgement arrived.

        A replica that was filled later knows only the batches after it (as in Kafka).
        """
        committed = self._world.checker.partitions[self.key]
        crc = parse_header(batch.data).crc
        return any(each.crc == crc and each.base_offset < committed.deleted_before for each in committed.batches)

    def _check(self, check: Callable[[], None]) -> None:
        try:
            check()
        except Violation as violation:
            self.failure = violation


class PipelinedProducer:
    def __init__(self, world: ReplicationSimulation, number: int) -> None:
        self._world = world
        self._number = number
        self._retries_alone = world.chance.random() < 0.5
        self.streams: dict[Key, PartitionStream] = {}

    @property
    def is_idle(self) -> bool:
        return not any(stream.unacknowledged for stream in self.streams.values())

    async def run(self) -> None:
        world = self._world
        async with asyncio.TaskGroup() as group:
            while not world.is_calm:
                await asyncio.sleep(world.chance.uniform(0.01, world.produce_seconds_max))
                wanted = world.some_partition()
                if wanted is not None:
                    self._stream(wanted[0], group).add()

    def _stream(self, key: Key, group: asyncio.TaskGroup) -> PartitionStream:
        stream = self.streams.get(key)
        if stream is None:
            stream = PartitionStream(self._world, self._number, key, retries_alone=self._retries_alone)
            self.streams[key] = stream
            group.create_task(stream.run())
        return stream
