"""Several coordinators that share one image. The leader of `__consumer_offsets` is the coordinator.

Commands apply to all nodes immediately, or when the test releases them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from chronik.clock import Clock, SystemClock
from chronik.coordination.host import CoordinatorTerms
from chronik.groups.config import GroupConfig
from chronik.groups.coordinator import GroupCoordinator
from chronik.metadata.apply import apply
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.commands.envelope import Command, Envelope, decode_command, encode_command
from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.metadata.commands.topics import CreateTopic, PartitionAssignment
from chronik.metadata.image import Image
from chronik.metadata.names import OFFSETS_TOPIC
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.store import Acks, DeltaSubscriber
from chronik.protocol.errors import ErrorCode, KafkaError

from .coordinator_helpers import CONFIG

NODES = (1, 2, 3)
OFFSETS_TOPIC_ID = b"_" * 16
TEST_NODE_ID = 0
LIVES = {node_id: bytes([node_id]) * 16 for node_id in (TEST_NODE_ID, *NODES)}


class SharedImage:
    """An image with one partition of `__consumer_offsets`, led by node 1, and a topic `t` with 100 partitions."""

    def __init__(self) -> None:
        self.image = Image()
        self._subscribers: list[DeltaSubscriber] = []
        self._sequences = dict.fromkeys(LIVES, 0)
        for node_id in NODES:
            self.apply(RegisterBroker(node_id, "host", 9092, None, LIVES[node_id], LIVES[node_id]))
        self.apply(CreateTopic(b"t" * 16, "t", (PartitionAssignment(NODES, NODES, 1),) * 100, {}, 0))
        offsets = (PartitionAssignment(NODES, NODES, 1),)
        self.apply(CreateTopic(OFFSETS_TOPIC_ID, OFFSETS_TOPIC, offsets, {}, 0, internal=True))

    def subscribe(self, subscriber: DeltaSubscriber) -> None:
        self._subscribers.append(subscriber)

    def apply(self, command: Command, node_id: int = TEST_NODE_ID) -> ApplyResult:
        self._sequences[node_id] += 1
        sequence = self._sequences[node_id]
        envelope = decode_command(encode_command(Envelope(node_id, LIVES[node_id], sequence, sequence - 1, command)))
        result, delta = apply(self.image, envelope, self.image.applied_index + 1)
        for subscriber in self._subscribers:
            subscriber(delta)
        assert node_id != TEST_NODE_ID or result.code is ErrorCode.NONE, result
        return result

    def elect(self, node_id: int) -> None:
        """Start a new term of another node or of the same one."""
        if self.leader == node_id:
            self.apply(SetPartitionLeader(OFFSETS_TOPIC_ID, 0, -1))
        self.apply(SetPartitionLeader(OFFSETS_TOPIC_ID, 0, node_id))

    @property
    def leader(self) -> int:
        return self.image.topics[OFFSETS_TOPIC].partitions[0].leader

    @property
    def epoch(self) -> int:
        return self.image.topics[OFFSETS_TOPIC].partitions[0].leader_epoch


class NodeStore:
    """One node's view of the shared image, with a proposal path that tests can hold."""

    def __init__(self, shared: SharedImage, node_id: int) -> None:
        self._shared = shared
        self._node_id = node_id
        self._held: list[tuple[Command, asyncio.Future[ApplyResult]]] | None = None
        self.proposed: list[Command] = []

    @property
    def image(self) -> Image:
        return self._shared.image

    def subscribe(self, subscriber: DeltaSubscriber) -> None:
        self._shared.subscribe(subscriber)

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> ApplyResult:
        self.proposed.append(command)
        if self._held is None:
            await asyncio.sleep(0)
            result = self._shared.apply(command, self._node_id)
        else:
            answer: asyncio.Future[ApplyResult] = asyncio.get_running_loop().create_future()
            self._held.append((command, answer))
            result = await answer
        if result.code is not ErrorCode.NONE:
            raise KafkaError(result.code, result.message)
        return result

    is_shared: Final = True

    async def read_barrier(self, seconds: float = 0.0) -> None: ...

    def is_durable(self, index: int) -> bool:
        return True

    async def wait_durable(self, index: int, seconds: float = 0.0) -> None: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def hold(self) -> None:
        self._held = []

    @property
    def held_count(self) -> int:
        return len(self._held or ())

    def release(self) -> None:
        """Apply the held commands, late."""
        held, self._held = self._held or [], None
        for command, answer in held:
            answer.set_result(self._shared.apply(command, self._node_id))

    def drop_held(self) -> None:
        """Drop the held commands and fail their proposals with an unknown outcome."""
        held, self._held = self._held or [], None
        for _, answer in held:
            answer.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the outcome is unknown"))


class CoordinatingNode:
    """A node with a group coordinator."""

    def __init__(self, shared: SharedImage, node_id: int, clock: Clock, config: GroupConfig) -> None:
        self.node_id = node_id
        self.store = NodeStore(shared, node_id)
        self.fatal: list[BaseException] = []
        self.is_fenced = False
        self.groups = GroupCoordinator(
            self.store,
            clock,
            config,
            self.fatal.append,
            CoordinatorTerms(self.store, node_id, OFFSETS_TOPIC).find_owned_term,
            is_fenced=lambda: self.is_fenced,
        )


@asynccontextmanager
async def running_nodes(
    shared: SharedImage, clock: Clock | None = None, config: GroupConfig = CONFIG
) -> AsyncIterator[dict[int, CoordinatingNode]]:
    running = {node_id: CoordinatingNode(shared, node_id, clock or SystemClock(), config) for node_id in NODES}
    for node in running.values():
        await node.groups.start()
        node.store.subscribe(node.groups.on_delta)
    try:
        yield running
    finally:
        for node in running.values():
            node.store.drop_held()
            await node.groups.close()
    for node in running.values():
        assert node.fatal == []
