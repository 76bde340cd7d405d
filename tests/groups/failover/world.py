"""A simulated cluster in one process and in virtual time: a command log, nodes that apply it with delays, proposals
that are late, lost or of unknown outcome, and nodes that crash or are isolated.

Invariants, checked for every applied command: a commit belongs to the current term, to no earlier generation and to a
member; committed offsets never decrease; a generation has one assignment, which covers every partition once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from chronik.coordination.host import CoordinatorTerms
from chronik.groups.config import GroupConfig
from chronik.groups.coordinator import GroupCoordinator
from chronik.metadata.apply import apply
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.brokers import BrokerStatus, RegisterBroker, UpdateBrokerStatus
from chronik.metadata.commands.envelope import Command, Envelope
from chronik.metadata.commands.groups import CommitOffset, CommitOffsetBatch, DeleteConsumerGroup, UpdateConsumerGroup
from chronik.metadata.commands.partitions import IsrChange, IsrMember, SetPartitionLeader, UpdateISR
from chronik.metadata.commands.topics import CreateTopic, PartitionAssignment
from chronik.metadata.image import Image
from chronik.metadata.names import OFFSETS_TOPIC, compute_coordinator_partition
from chronik.metadata.records import ApplyResult
from chronik.metadata.sessions import find_earlier_result
from chronik.metadata.stores.store import Acks, DeltaSubscriber, StoreClosedError
from chronik.protocol.errors import ErrorCode, KafkaError

from .virtual_time import VirtualClock

T = TypeVar("T")

NODES: Final = (1, 2, 3)
GROUPS: Final = ("orders", "bills")
TOPIC: Final = "t"
PARTITIONS: Final = tuple(range(6))
TERMS: Final = 4
"""Number of partitions of `__consumer_offsets`, and thus of coordinator terms."""

SESSION_SECONDS: Final = 3.0
PROPOSE_SECONDS: Final = 10.0
ATTEMPT_SECONDS: Final = 3.0
CONTROLLER: Final = 0
CONFIG: Final = GroupConfig(new_member_join_timeout_ms=20_000)


class NodeUnavailable(Exception):
    """The node died or the response was lost."""


class InvariantViolated(AssertionError):
    """An invariant was violated."""


class FailoverWorld:
    """The simulated cluster and its command log."""

    def __init__(self, seed: int, *, without_epochs: bool = False) -> None:
        self.random = random.Random(seed)
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.trouble = True
        self.without_epochs = without_epochs
        self.log: list[Envelope] = []
        self.image = Image()
        self.assignments: dict[tuple[str, int], dict[int, str]] = {}
        self.told: set[tuple[str, int, str, bytes]] = set()
        self.failovers = self.generations = self.commits = self.rejected_count = 0
        self._sequence = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self.violation: BaseException | None = None
        self._create_topics()
        self.nodes = {node_id: FailoverNode(self, node_id) for node_id in NODES}

    def _create_topics(self) -> None:
        for node_id in NODES:
            life = bytes([node_id]) * 16
            self.decide(RegisterBroker(node_id, "host", 9092, None, life, life))
        topics = {TOPIC: len(PARTITIONS), OFFSETS_TOPIC: TERMS}
        for name, count in topics.items():
            spread = (NODES[index % len(NODES)] for index in range(count))
            partitions = tuple(PartitionAssignment(NODES, NODES, leader) for leader in spread)
            self.decide(CreateTopic(name.encode().ljust(16)[:16], name, partitions, {}, 0))

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.violation = self.violation or error

    # --- the log ---

    def decide(self, command: Command) -> None:
        """Append a command of the controller immediately."""
        self._sequence += 1
        self.append(Envelope(CONTROLLER, bytes(16), self._sequence, self._sequence - 1, command))

    def append(self, envelope: Envelope) -> None:
        before = self._committed_offsets()
        session = self.image.session(envelope.node_id)
        is_known = find_earlier_result(session, envelope.incarnation, envelope.sequence) is not None
        result = apply(self.image, envelope, self.image.applied_index + 1).result
        self.log.append(envelope)
        if is_known:
            return  # a duplicate: it is acknowledged again and changes nothing
        try:
            self._check(envelope.command, result, before)
        except InvariantViolated as broken:
            self.violation = self.violation or broken

    def _committed_offsets(self) -> dict[tuple[str, int], int]:
        return {
            (group, partition): committed.offset
            for group in GROUPS
            for (_, partition), committed in self.image.offsets(group).items()
        }

    # --- invariants ---

    def _check(self, command: Command, result: ApplyResult, before: dict[tuple[str, int], int]) -> None:
        if isinstance(command, DeleteConsumerGroup):
            raise InvariantViolated("a group was deleted, which this simulation never does")
        for key, offset in self._committed_offsets().items():
            if offset < before.get(key, 0):
                raise InvariantViolated(f"{key}: committed offset decreased from {before[key]} to {offset}: {command}")
        if isinstance(command, CommitOffsetBatch) and result.code is ErrorCode.NONE:
            failed = {failure.item for failure in result.failures}
            self.rejected_count += len(failed)
            for item, commit in enumerate(command.commits):
                if item not in failed:
                    self._check_commit(commit)
        elif isinstance(command, UpdateConsumerGroup):
            if result.code is ErrorCode.NONE:
                self._check_assignment(command)
            else:
                self.rejected_count += 1

    def _check_commit(self, commit: CommitOffset) -> None:
        group = self.image.groups[commit.group_id]
        index = compute_coordinator_partition(commit.group_id, TERMS)
        term = self.image.topics[OFFSETS_TOPIC].partitions[index].leader_epoch
        if commit.coordinator_epoch != term and not self.without_epochs:
            raise InvariantViolated(f"commit of term {commit.coordinator_epoch} applied in term {term}")
        for offset in commit.offsets:
            generation, _, member_id = (offset.metadata or "").partition(" ")
            if int(generation) < group.generation:
                raise InvariantViolated(f"commit of generation {generation} applied in generation {group.generation}")
            members = {member.member_id for member in group.members}
            if int(generation) == group.generation and member_id not in members:
                raise InvariantViolated(f"commit of {member_id}, which is not a member: {members}")
        self.commits += 1

    def _check_assignment(self, command: UpdateConsumerGroup) -> None:
        if not command.members:
            return
        owners: dict[int, str] = {}
        for member in command.members:
            for partition in member.assignment:
                if partition in owners:
                    raise InvariantViolated(f"partition {partition} has two owners: {command}")
                owners[partition] = member.group_instance_id or member.member_id
        if sorted(owners) != list(PARTITIONS):
            raise InvariantViolated(f"a partition has no owner: {command}")
        known = self.assignments.setdefault((command.group_id, command.generation), owners)
        self.generations += known is owners
        if known != owners:
            raise InvariantViolated(f"two assignments in generation {command.generation}: {known} and {owners}")

    def check_delivered_assignment(self, group: str, generation: int, name: str, assignment: bytes) -> None:
        """Check that an assignment delivered to a member equals the stored one."""
        stored = self.assignments.get((group, generation), {})
        if {partition for partition, owner in stored.items() if owner == name} != set(assignment):
            raise InvariantViolated(f"{name}: delivered {list(assignment)} in generation {generation}, stored {stored}")

    def check_acknowledged(self, group: str, partition: int, offset: int) -> None:
        committed = self.image.offset(group, TOPIC, partition)
        if committed is None or committed.offset < offset:
            raise InvariantViolated(
                f"{group} {partition}: offset {offset} was acknowledged, but {committed} is committed"
            )

    # --- faults ---

    async def inject_faults(self, seconds: float) -> None:
        ends = self.clock.monotonic() + seconds
        while self.clock.monotonic() < ends:
            await asyncio.sleep(self.random.uniform(0.5, 4.0))
            node = self.nodes[self.random.choice(NODES)]
            match self.random.randrange(4):
                case 0:
                    await node.crash()
                case 1:
                    node.start_isolation(self.random.uniform(0.2, 15.0))
                case _:
                    self._move_term()
        self.trouble = False
        for node in self.nodes.values():
            node.heal()

    def _move_term(self) -> None:
        topic = self.image.topics[OFFSETS_TOPIC]
        index = self.random.randrange(TERMS)
        leader = self.random.choice([*topic.partitions[index].isr])
        if self.image.brokers[leader].is_online:
            self.decide(SetPartitionLeader(topic.id, index, -1))
            self.decide(SetPartitionLeader(topic.id, index, leader))
            self.failovers += 1

    def fence(self, node_id: int) -> None:
        self.failovers += sum(p.leader == node_id for p in self.image.topics[OFFSETS_TOPIC].partitions)
        self.decide(UpdateBrokerStatus(node_id, BrokerStatus.OFFLINE))
        self.run_controller()

    def run_controller(self) -> None:
        """Act as the controller: give every term a coordinator and unfence every connected broker."""
        image = self.image
        for name in (OFFSETS_TOPIC, TOPIC):
            for index in range(len(image.topics[name].partitions)):
                online = [node_id for node_id in NODES if image.brokers[node_id].is_online]
                topic = image.topics[name]
                if topic.partitions[index].leader < 0 and online:
                    self.decide(SetPartitionLeader(topic.id, index, online[0], unclean=True))
                partition = image.topics[name].partitions[index]
                if partition.leader < 0 or set(online) <= set(partition.isr):
                    continue
                isr = tuple(IsrMember(each, image.brokers[each].epoch) for each in online)
                change = IsrChange(topic.id, index, partition.leader_epoch, partition.partition_epoch, isr)
                self.decide(UpdateISR(partition.leader, image.brokers[partition.leader].epoch, (change,)))


class FailoverNode:
    """A simulated node. Its image survives a crash, as a disk does; everything else is lost."""

    def __init__(self, world: FailoverWorld, node_id: int) -> None:
        self._world = world
        self.node_id = node_id
        self.image = Image()
        self._applied = 0
        self._acknowledged_at = 0.0
        self._is_connected = asyncio.Event()
        self._is_connected.set()
        self.store: FailoverStore
        self.groups: GroupCoordinator
        self.coordinators: CoordinatorTerms
        self._died: asyncio.Future[None]
        self._life = 0

    async def start(self) -> None:
        self._life += 1
        self._died = asyncio.get_running_loop().create_future()
        self._acknowledged_at = float("-inf")
        self.store = FailoverStore(self._world, self, bytes([self.node_id, self._life]) * 8)
        self.coordinators = CoordinatorTerms(self.store, self.node_id, OFFSETS_TOPIC)
        self.groups = GroupCoordinator(
            self.store,
            self._world.clock,
            CONFIG,
            self._fail,
            self.coordinators.find_owned_term,
            is_fenced=self.is_fenced,
        )
        await self.groups.start()
        self.store.subscribe(self.groups.on_delta)
        self._tasks = [self._world.start_task(work) for work in (self._apply_forever(), self._send_heartbeats())]
        self.store.register()
        self._world.run_controller()

    def _fail(self, error: BaseException) -> None:
        self._world.violation = self._world.violation or error

    @property
    def is_alive(self) -> bool:
        return not self._died.done()

    def is_fenced(self) -> bool:
        broker = self.image.brokers.get(self.node_id)
        is_known = broker is not None and broker.is_online and broker.incarnation == self.store.incarnation
        return not is_known or self._world.clock.monotonic() - self._acknowledged_at > SESSION_SECONDS

    async def send_request(self, request: Callable[[FailoverNode], Awaitable[T]], seconds: float) -> T:
        """Send a client request to the node. The request or the response may be lost, or the node may crash."""
        random = self._world.random
        asking: asyncio.Future[Any] = asyncio.ensure_future(self._delay(request))
        is_lost = self._world.trouble and random.random() < 0.01
        await asyncio.wait([asking, self._died], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if is_lost or not asking.done() or not self.is_alive:
            asking.add_done_callback(lambda done: done.cancelled() or done.exception())
            if not self.is_alive:
                asking.cancel()
            raise NodeUnavailable
        answer: T = asking.result()
        return answer

    async def _delay(self, request: Callable[[FailoverNode], Awaitable[T]]) -> T:
        await asyncio.sleep(self._world.random.uniform(0.0, 0.02))
        return await request(self)

    # --- faults ---

    async def crash(self) -> None:
        if not self.is_alive:
            return
        self._died.set_result(None)
        self.store.close_abruptly()
        for task in self._tasks:
            task.cancel()
        await self.groups.close()
        self._world.start_task(self._restart())

    async def _restart(self) -> None:
        random = self._world.random
        await asyncio.sleep(random.uniform(0.1, 2.0))
        self._world.fence(self.node_id)
        await asyncio.sleep(random.uniform(0.0, 5.0))
        await self.start()

    def start_isolation(self, seconds: float) -> None:
        if self.is_alive and self._is_connected.is_set():
            self._is_connected.clear()
            self._world.start_task(self._isolate(seconds))

    async def _isolate(self, seconds: float) -> None:
        """Isolate the node from the other nodes. Clients still reach it, and it serves them until it fences itself."""
        patience = self._world.random.uniform(0.5, SESSION_SECONDS)
        life = self._life
        await asyncio.sleep(min(patience, seconds))
        if seconds > patience and life == self._life and self.is_alive:
            self._world.fence(self.node_id)
            await asyncio.sleep(seconds - patience)
        self.heal()

    def heal(self) -> None:
        self._is_connected.set()

    async def wait_connected(self) -> None:
        await self._is_connected.wait()

    @property
    def is_connected(self) -> bool:
        return self._is_connected.is_set()

    # --- the log ---

    async def _send_heartbeats(self) -> None:
        while True:
            asked_at = self._world.clock.monotonic()
            await self.wait_connected()
            broker = self._world.image.brokers[self.node_id]
            if broker.incarnation == self.store.incarnation:
                if not broker.is_online:
                    self._world.decide(UpdateBrokerStatus(self.node_id, BrokerStatus.ONLINE))
                    self._world.run_controller()
                self._acknowledged_at = asked_at
            await asyncio.sleep(SESSION_SECONDS / 4)

    async def _apply_forever(self) -> None:
        """Apply decided commands in batches, after a delay."""
        while True:
            await asyncio.sleep(self._world.random.choice((0.002, 0.01, 0.05)))
            await self.wait_connected()
            for envelope in self._world.log[self._applied :]:
                result, delta = apply(self.image, envelope, self.image.applied_index + 1)
                self._applied += 1
                self.store.publish(delta)
                self.store.acknowledge(envelope, result)


class FailoverStore:
    """The metadata store of one incarnation of a node.

    Like the real store, it resends a command under the same id until it is acknowledged, and gives up after a timeout
    without knowing the outcome.
    """

    def __init__(self, world: FailoverWorld, node: FailoverNode, incarnation: bytes) -> None:
        self._world = world
        self._node = node
        self.incarnation = incarnation
        self._sequence = 0
        self._answered = 0
        self._pending: dict[int, asyncio.Future[ApplyResult]] = {}
        self._subscribers: list[DeltaSubscriber] = []
        self._is_closed = False

    @property
    def image(self) -> Image:
        return self._node.image

    def subscribe(self, subscriber: DeltaSubscriber) -> None:
        self._subscribers.append(subscriber)

    def publish(self, delta: Any) -> None:
        for subscriber in self._subscribers:
            subscriber(delta)

    def register(self) -> None:
        """Propose the registration of the node, the first command of each incarnation."""
        self._sequence = 1
        node_id = self._node.node_id
        command = RegisterBroker(node_id, "host", 9092, None, self.incarnation, bytes([node_id]) * 16)
        self._world.append(Envelope(node_id, self.incarnation, self._sequence, 0, command))

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> ApplyResult:
        if self._is_closed:
            raise StoreClosedError("the node is dead")
        if self._world.without_epochs:
            command = _without_epoch(command)
        while self._answered < self._sequence and self._answered + 1 not in self._pending:
            self._answered += 1
        self._sequence += 1
        envelope = Envelope(self._node.node_id, self.incarnation, self._sequence, self._answered, command)
        answer = self._pending[self._sequence] = asyncio.get_running_loop().create_future()
        try:
            result = await self._wait_for_outcome(envelope, answer)
        finally:
            del self._pending[envelope.sequence]
        if result.code is not ErrorCode.NONE:
            raise KafkaError(result.code, result.message)
        return result

    async def _wait_for_outcome(self, envelope: Envelope, answer: asyncio.Future[ApplyResult]) -> ApplyResult:
        gives_up_at = self._world.clock.monotonic() + PROPOSE_SECONDS
        while (left := gives_up_at - self._world.clock.monotonic()) > 0:
            self._world.start_task(self._deliver(envelope))
            await asyncio.wait([answer], timeout=min(ATTEMPT_SECONDS, left))
            if answer.done():
                return answer.result()
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the outcome is unknown")

    async def _deliver(self, envelope: Envelope) -> None:
        """Deliver a command once, twice, late or never. A cut link delivers held commands when it heals."""
        random = self._world.random
        fate = random.random() if self._world.trouble else 1.0
        if fate < 0.03:
            return
        await asyncio.sleep(random.uniform(5.0, 20.0) if fate < 0.06 else random.uniform(0.001, 0.02))
        await self._node.wait_connected()
        self._world.append(envelope)
        if fate < 0.1:
            await asyncio.sleep(random.uniform(0.0, 15.0))
            self._world.append(envelope)

    def acknowledge(self, envelope: Envelope, result: ApplyResult) -> None:
        answer = self._pending.get(envelope.sequence)
        if envelope.incarnation == self.incarnation and answer is not None and not answer.done():
            answer.set_result(result)

    def close_abruptly(self) -> None:
        self._is_closed = True
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(StoreClosedError("the node is dead"))

    is_shared: Final = True

    async def read_barrier(self, seconds: float = 0.0) -> None: ...

    def is_durable(self, index: int) -> bool:
        return True

    async def wait_durable(self, index: int, seconds: float = 0.0) -> None: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


def _without_epoch(command: Command) -> Command:
    if isinstance(command, CommitOffsetBatch):
        commits = tuple(replace(commit, coordinator_epoch=NO_EPOCH) for commit in command.commits)
        return replace(command, commits=commits)
    return replace(command, coordinator_epoch=NO_EPOCH)
