"""A fault-free cluster of three nodes for scripted tests that hold back and release requests, markers and proposals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from chronik.broker.replica import Replica
from chronik.metadata.commands.envelope import decode_command
from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.metadata.commands.topics import CreateTopic, DeleteTopic, PartitionAssignment
from chronik.metadata.names import TRANSACTIONS_TOPIC, compute_coordinator_partition
from chronik.metadata.records import Topic, Transaction
from chronik.peers.calls import CallKind, CallTimedOut
from chronik.transactions.config import PRODUCER_EPOCH_MAX
from tests.replication.controller import CONFIGS
from tests.replication.network import VirtualCalls
from tests.transactions.checkers import TransactionVerdict, judge
from tests.transactions.evidence import TransactionEvidence
from tests.transactions.history import TopicGone, TransactionId

from .copier import OUTPUT
from .process import TransactionalProcess
from .producer import TransactionalProducer
from .reader import final_reads
from .requests import Versions
from .world import TransactionWorld

T = TypeVar("T")

SECONDS_MAX = 40.0
ID = "t"
TIMEOUT_MS = 5000


class ScriptedCluster(TransactionWorld):
    """Nodes 1 to 3, each of which has a replica of every partition."""

    def __init__(self, epoch_max: int = PRODUCER_EPOCH_MAX) -> None:
        super().__init__(1)
        self.epoch_max = epoch_max
        while len(self.hosts) > 3:
            del self.hosts[max(self.hosts)]
        self.network.heal()
        self.consensus.heal()
        self.wire.late = self.wire.twice = 0.0
        self.is_calm = True
        self._held_calls: dict[CallKind, asyncio.Event] = {}
        self.held_call_count = 0
        """Number of calls that are held back."""
        self._held_commands: tuple[type, ...] = ()
        self.held_commands: list[bytes] = []
        """Proposals that are held back."""
        self._ask, self._arrive = self.network.ask, self.consensus.arrive
        patched: Any = self.network
        patched.ask = self._call_when_released
        patched = self.consensus
        patched.arrive = self._deliver_when_released
        self._story_told: Callable[[ScriptedCluster], Coroutine[Any, Any, None]]

    def run_script(self, script: Callable[[ScriptedCluster], Coroutine[Any, Any, None]]) -> TransactionVerdict:
        """Run a scripted test and return the verdict of the checkers when all transactions have ended."""
        self._story_told = script
        self.run()
        return self.verdict

    async def _story(self) -> None:
        for host in self.hosts.values():
            host.sync_seconds_max = 0.001
            self.start(host)
        await self.until(lambda: all(self.is_up(host) for host in self.hosts.values()), SECONDS_MAX, "nodes")
        self._controller.create_initial_topics()
        await self.until(self._is_in_sync, SECONDS_MAX, "all replicas to be in sync")
        await self._story_told(self)
        await self.until(self._is_decided, SECONDS_MAX, "every transaction to be decided")
        for replica in self._replicas():
            self.events += final_reads(replica._node_id, replica, self.loop.time())
        self.verdict = judge(self.events)

    # -- clients ------------------------------------------------------------------------------------------------------

    def producer(self, versions: Versions, name: str = "p", timeout_ms: int = TIMEOUT_MS) -> TransactionalProducer:
        return TransactionalProducer(self, ID, name, versions, timeout_ms)

    @property
    def output(self) -> Topic:
        return self.topic(OUTPUT)

    async def deliver_late(
        self, node: int, work: Callable[[TransactionalProcess], Awaitable[T]], look: Any = None
    ) -> T:
        """Deliver a request to a node late, whatever its client is doing."""
        answer: T | None = await self.wire.send_request(node, work, look or (lambda: None))
        assert answer is not None
        return answer

    # -- observations -------------------------------------------------------------------------------------------------

    @property
    def transaction(self) -> Transaction:
        return self.consensus.image.transactions[ID]

    def process(self, node: int) -> TransactionalProcess:
        process = self.hosts[node].process
        assert isinstance(process, TransactionalProcess)
        return process

    def leader_replica(self, index: int, topic: str = OUTPUT) -> Replica:
        replica = self.process(self.leader(index, topic)).led(topic, index)
        assert replica is not None
        return replica

    def leader(self, index: int, topic: str = OUTPUT) -> int:
        return self.topic(topic).partitions[index].leader

    @property
    def coordinator(self) -> int:
        return self.leader(self._coordinator_node, TRANSACTIONS_TOPIC)

    @property
    def _coordinator_node(self) -> int:
        return compute_coordinator_partition(ID, len(self.topic(TRANSACTIONS_TOPIC).partitions))

    def outcomes(self, *transactions: TransactionId) -> list[bool]:
        """Return for each transaction whether its records are visible at the end. It must have some."""
        return [self._is_visible(each) for each in transactions]

    def _is_visible(self, transaction: TransactionId) -> bool:
        evidence = TransactionEvidence(self.events)
        sent = evidence.transactions[transaction].sent
        assert sent
        return all(each.id in evidence.visible_records for each in sent)

    # -- actions ------------------------------------------------------------------------------------------------------

    def move_coordinator(self, node: int) -> None:
        topic = self.topic(TRANSACTIONS_TOPIC)
        self.consensus.command(SetPartitionLeader(topic.id, self._coordinator_node, node))

    def move_leader(self, index: int, node: int) -> None:
        self.consensus.command(SetPartitionLeader(self.output.id, index, node))

    def create(self, name: str) -> Topic:
        nodes = tuple(sorted(self.hosts))
        assignments = (PartitionAssignment(nodes, nodes, nodes[0]),)
        self.consensus.command(CreateTopic(self.new_id(), name, assignments, CONFIGS, 0))
        return self.topic(name)

    def delete(self, topic: Topic) -> None:
        self.consensus.command(DeleteTopic(topic.id))

    def record_deleted_topic(self, topic: Topic) -> None:
        """Record that a topic was deleted, so that its records may be missing at the end."""
        self.tell(TopicGone(topic=topic.id.hex()))

    def isolate_node(self, node: int, *, is_cut_off: bool = True) -> None:
        """Cut the node off from the metadata log."""
        self.process(node).is_cut_off = is_cut_off

    @contextmanager
    def freeze_image(self, node: int) -> Iterator[None]:
        """Freeze the node's image. Its proposals are still applied."""
        store: Any = self.process(node).store
        with patch.multiple(store, _apply=lambda count: None, _install_snapshot=lambda: None):
            yield

    def hold_calls(self, kind: CallKind) -> asyncio.Event:
        """Hold back new calls of this kind until the event is set, even after their callers have timed out."""
        gate = self._held_calls[kind] = asyncio.Event()
        return gate

    def pass_calls(self, kind: CallKind) -> None:
        """Stop holding back new calls of this kind."""
        del self._held_calls[kind]

    async def _call_when_released(
        self, asker: VirtualCalls, peer: int, kind: int, payload: bytes, timeout: float
    ) -> bytes:
        gate = self._held_calls.get(CallKind(kind))
        if gate is None:
            return await self._ask(asker, peer, kind, payload, timeout)
        self.held_call_count += 1
        call = asyncio.ensure_future(self._call_later(gate, asker, peer, kind, payload, timeout))
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(call)
        except TimeoutError:
            raise CallTimedOut(f"node {peer} did not respond") from None

    async def _call_later(
        self, gate: asyncio.Event, asker: VirtualCalls, peer: int, kind: int, payload: bytes, timeout: float
    ) -> bytes:
        try:
            await gate.wait()
            return await self._ask(asker, peer, kind, payload, timeout)
        finally:
            self.held_call_count -= 1

    def hold_commands(self, *kinds: type) -> None:
        """Hold back new proposals of exactly these command types."""
        self._held_commands = kinds

    def release_commands(self) -> None:
        self._held_commands = ()
        held, self.held_commands = self.held_commands, []
        for data in held:
            self._arrive(data)

    def _deliver_when_released(self, data: bytes) -> None:
        if isinstance(decode_command(data).command, self._held_commands):
            self.held_commands.append(data)
        else:
            self._arrive(data)

    async def wait_until(self, is_so: Callable[[], bool], what: str = "the test to continue") -> None:
        await self.until(is_so, SECONDS_MAX, what)
