"""Producers and consumers of the simulation, which send requests to the node that they believe is the leader."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING

from chronik.protocol.batch import parse_header
from chronik.protocol.errors import ErrorCode
from chronik.protocol.records import Record, encode_batch
from tests.replication.checker import Key, Violation
from tests.replication.host import Host, Process

if TYPE_CHECKING:
    from tests.replication.simulation import ReplicationSimulation

LEADER, ALL = 1, -1
PATIENCE_SECONDS = 4.0


class Producer:
    """A producer; an idempotent one retries a batch with its sequence number until it is acknowledged."""

    def __init__(self, world: ReplicationSimulation, number: int, *, is_idempotent: bool) -> None:
        self._world = world
        self._chance: random.Random = world.chance
        self._number = number
        self._is_idempotent = is_idempotent
        self._sequences: dict[Key, int] = {}
        self._sent = 0

    async def run(self) -> None:
        world = self._world
        while not world.have_clients_left:
            await asyncio.sleep(self._chance.uniform(0.01, world.produce_seconds_max))
            wanted = world.some_partition()
            if wanted is not None:
                await self.send(wanted[0])

    async def send(self, key: Key, acks: int | None = None) -> bool:
        """Send a batch and return whether it was acknowledged."""
        count = self._chance.randint(1, 3)
        sequence = self._sequences.get(key, 0)
        self._sent += 1
        records = [Record(offset, 0, None, b"%d/%d" % (self._number, self._sent)) for offset in range(count)]
        data = encode_batch(records)
        if self._is_idempotent:
            data = encode_batch(records, producer_id=self._number, producer_epoch=0, base_sequence=sequence)
        if acks is None:
            acks = ALL if self._is_idempotent else self._chance.choice((LEADER, ALL))
        while not self._world.have_clients_left:
            code, offset = await self._world.ask_leader(key, partial(_produce, key=key, data=data, acks=acks))
            if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise Violation(f"{key}: batches before sequence {sequence} of producer {self._number} are lost")
            if code is ErrorCode.NONE:
                if acks == ALL:
                    self._world.checker.on_acknowledged(key, offset, parse_header(data).crc)
                self._sequences[key] = sequence + count
                return True
            if not self._is_idempotent or not self._world.exists(key):
                return False
            await asyncio.sleep(self._chance.uniform(0.01, 0.3))
        return False


async def _produce(process: Process, key: Key, data: bytes, acks: int) -> tuple[ErrorCode, int]:
    return await process.produce(*key, data, acks)


class Consumer:
    """A consumer of committed records."""

    def __init__(self, world: ReplicationSimulation) -> None:
        self._world = world

    async def run(self) -> None:
        world, chance = self._world, self._world.chance
        while not world.have_clients_left:
            await asyncio.sleep(chance.uniform(0.05, 0.4))
            wanted = world.some_partition()
            host: Host = chance.choice(list(world.hosts.values()))
            if wanted is not None and host.process is not None and not host.process.life.is_paused:
                key, topic = wanted
                replica = host.process.led(topic, key[1])
                if replica is not None and replica.topic_id == key[0]:
                    start = replica.log.log_start_offset
                    offset = chance.randint(start, max(start, replica.high_watermark))
                    data = replica.read(offset, 2000, min_one_batch=True)
                    world.checker.on_consumed(key, replica, data)
