"""An in-memory metadata store: the real image and commands, applied immediately or when the test releases them."""

from __future__ import annotations

import asyncio
from collections import deque

from chronik.metadata import levels
from chronik.metadata.apply import apply
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.commands.envelope import Command, Envelope, decode_command, encode_command
from chronik.metadata.commands.topics import CreateTopic, PartitionAssignment
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.store import Acks
from chronik.protocol.errors import ErrorCode, KafkaError

LIFE = b"the life of node"
PARTITIONS = (PartitionAssignment((1,), (1,), 1),) * 100
BROKER_AND_TOPICS: tuple[Command, ...] = (
    RegisterBroker(1, "host", 9092, None, bytes(16), bytes(16), levels=(1, levels.HIGHEST)),
    CreateTopic(b"t" * 16, "t", PARTITIONS, {}, 0),
    CreateTopic(b"o" * 16, "other", PARTITIONS, {}, 0),
)


class MemoryStore:
    """A metadata store without a disk."""

    def __init__(self) -> None:
        self._image = Image()
        self._held: deque[tuple[Command, asyncio.Future[ApplyResult]]] | None = None
        self.commands: list[Command] = []
        """Commands applied since the topics were created, in order."""
        self.failures: list[BaseException] = []
        """Exceptions that the next proposals raise."""
        for command in BROKER_AND_TOPICS:
            assert self._apply(command).code is ErrorCode.NONE
        self.commands.clear()

    @property
    def image(self) -> Image:
        return self._image

    def hold(self) -> None:
        self._held = deque()

    @property
    def held_count(self) -> int:
        return len(self._held or ())

    def release(self) -> None:
        held, self._held = self._held, None
        for command, answer in held or ():
            if not answer.done():
                answer.set_result(self._apply(command))

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> ApplyResult:
        if self.failures:
            raise self.failures.pop(0)
        if self._held is None:
            await asyncio.sleep(0)
            result = self._apply(command)
        else:
            answer: asyncio.Future[ApplyResult] = asyncio.get_running_loop().create_future()
            self._held.append((command, answer))
            result = await answer
        if result.code is not ErrorCode.NONE:
            raise KafkaError(result.code, result.message)
        return result

    def _apply(self, command: Command) -> ApplyResult:
        index = self._image.applied_index + 1
        envelope = decode_command(encode_command(Envelope(1, LIFE, index, index - 1, command)))
        self.commands.append(envelope.command)
        return apply(self._image, envelope, index).result
