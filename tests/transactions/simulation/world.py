"""The simulated cluster of tests/replication, with its faults and with transactions: coordinator terms that start and
end, clients that are replaced, sleep and return, and requests that arrive late or twice.

`checkers` judge what the clients observed. When the faults stop, every transaction must be decided within a time limit.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import pytest
from msgspec.structs import replace

from chronik import scheduler
from chronik.broker.replica import Replica
from chronik.metadata import chunking, levels
from chronik.metadata.commands.cluster import SetFeatureLevel
from chronik.metadata.commands.envelope import decode_command
from chronik.metadata.commands.topics import NO_LEADER, CreateTopic, PartitionAssignment
from chronik.metadata.commands.transactions import EndTransaction
from chronik.metadata.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from chronik.metadata.records import Topic
from chronik.protocol.errors import ErrorCode
from chronik.transactions import decisions
from chronik.transactions.config import PRODUCER_EPOCH_MAX, TransactionConfig
from tests.chaos.history import Event, Place
from tests.replication.checker import Violation
from tests.replication.clients import Producer
from tests.replication.controller import CONFIGS, SimulatedController
from tests.replication.host import Host, Process
from tests.replication.simulation import CALM_SECONDS_MAX, ReplicationSimulation
from tests.transactions.checkers import TransactionVerdict, judge
from tests.transactions.history import StableSeen, TopicGone

from .copier import CLIENT_VERSIONS, INPUT, OUTPUT, Copier
from .process import TransactionalProcess
from .reader import Reader, final_reads
from .wire import ClientNetwork

E = TypeVar("E", bound=Event)

SYSTEM_PARTITIONS: Final = {OFFSETS_TOPIC: 2, TRANSACTIONS_TOPIC: 3, INPUT: 1, OUTPUT: 2}
PERMANENT_TOPICS: Final = (*SYSTEM_PARTITIONS,)
"""Topics that are never deleted."""
CALM_TRANSACTIONS_SECONDS: Final = 1.0


class TransactionController(SimulatedController):
    """A controller that also creates the topics of transactions."""

    def create_initial_topics(self) -> None:
        consensus = self._world.consensus
        consensus.command(SetFeatureLevel(levels.FEATURE_NAME, levels.HIGHEST))
        hosts = tuple(sorted(self._world.hosts))
        for name, count in SYSTEM_PARTITIONS.items():
            spread = [hosts[index % len(hosts)] for index in range(count)]
            assignments = tuple(PartitionAssignment(hosts, hosts, leader) for leader in spread)
            is_internal = name.startswith("__")
            configs = {} if is_internal else CONFIGS
            consensus.command(CreateTopic(self._world.new_id(), name, assignments, configs, 0, internal=is_internal))
        super().create_initial_topics()

    def may_be_deleted(self, topic: Topic) -> bool:
        return topic.name not in PERMANENT_TOPICS


class TransactionWorld(ReplicationSimulation):
    """The simulated cluster with transactional clients."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.deletes_records = False
        self.consensus.lag_seconds_max = self.chance.choice((0.01, 0.05, 0.4))
        self.fault_seconds_max = self.chance.choice((1.0, 2.5, 5.0))
        self.epoch_max = self.chance.choice((PRODUCER_EPOCH_MAX, PRODUCER_EPOCH_MAX, 5))
        """In some runs, the epochs of a producer id are exhausted early."""
        self._config = TransactionConfig()
        if self.chance.random() < 0.2:  # transactional ids expire while their producers are active
            self._config = TransactionConfig(expiration_ms=1000, expiration_check_interval_ms=500)
        self.events: list[Event] = []
        self.counts: Counter[str] = Counter()
        self.is_finishing = False
        self.wire = ClientNetwork(self)
        self.verdict = TransactionVerdict([], [])
        self._stable: dict[tuple[Place, int], int] = {}
        self._copiers: list[Copier] = []

    def tell(self, event: E) -> None:
        self.events.append(replace(event, at=self.loop.time()))

    def summary(self) -> str:
        transactions = [str(each) for each in self.consensus.image.transactions.values()]
        return f"{super().summary()}; {transactions}; {dict(self.counts)}"

    # -- participants -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chunking, "perf_counter", lambda: 0.0)  # slices would depend on the real clock
            patch.setattr(scheduler, "perf_counter", lambda: 0.0)
            patch.setattr(decisions, "PRODUCER_EPOCH_MAX", self.epoch_max)
            super().run()

    def new_controller(self) -> SimulatedController:
        return TransactionController(self)

    def new_process(self, host: Host) -> Process:
        process = TransactionalProcess(host, self.loop, self.chance, self.network, self.consensus)
        process.config = self._config
        return process

    def clients(self) -> list[Coroutine[Any, Any, None]]:
        self._copiers = [Copier(self, number, versions) for number, versions in enumerate(CLIENT_VERSIONS)]
        readers = [Reader(self, number) for number in range(2)]
        plain = Producer(self, 1, is_idempotent=False)
        return [*(each.run() for each in self._copiers), *(each.run() for each in readers), plain.run()]

    def some_partition(self) -> tuple[tuple[bytes, int], str] | None:
        topic = self.some_topic()
        return None if topic is None else ((topic.id, self.chance.randrange(len(topic.partitions))), topic.name)

    def some_topic(self) -> Topic | None:
        image = self.consensus.image
        found = [topic for name, topic in image.topics.items() if name == OUTPUT or name not in PERMANENT_TOPICS]
        return self.chance.choice(found) if found else None

    def topic(self, name: str) -> Topic:
        return self.consensus.image.topics[name]

    def isolate(self, host: Host) -> None:
        super().isolate(host)
        process = host.process
        if isinstance(process, TransactionalProcess) and self.chance.random() < 0.5:
            seconds = self.chance.uniform(0.05, 2.0)
            self.loop.call_soon(process.fence_itself, seconds, context=process.life.context)

    # -- clients' metadata --------------------------------------------------------------------------------------------

    def leader_of(self, topic_id: bytes, index: int) -> int:
        topic = self.consensus.image.topics_by_id.get(topic_id)
        return self._possibly_outdated(NO_LEADER if topic is None else topic.partitions[index].leader)

    def coordinator_of(self, topic: str, key: str) -> int:
        partition = self.consensus.image.find_coordinator_partition(topic, key)
        return self._possibly_outdated(NO_LEADER if partition is None else partition.leader)

    def _possibly_outdated(self, leader: int) -> int:
        """Return the leader according to a client's metadata, which may be outdated."""
        if leader == NO_LEADER or (not self.is_calm and self.chance.random() < 0.1):
            return self.chance.choice(sorted(self.hosts))
        return leader

    # -- observations -------------------------------------------------------------------------------------------------

    def ended(self, reason: str) -> None:
        """Record that an instance of a client has failed."""
        self.note("at its end", reason)
        is_fenced = any(code.name in reason for code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))
        self.counts["fenced" if is_fenced else "gave up"] += 1

    def refused(self, code: ErrorCode) -> None:
        self.counts["refused"] += 1

    def _committed(self) -> None:
        super()._committed()
        command = decode_command(self.consensus.log[-1]).command
        if isinstance(command, EndTransaction) and not command.commit:
            now = self.consensus.image.transactions.get(command.transactional_id)
            if now is not None and command.time_ms - now.began_ms >= now.timeout_ms:
                self.counts["timed out"] += 1

    def moved(self, replica: Replica) -> None:
        super().moved(replica)
        process = self.hosts[replica._node_id].process
        if process is None or not process.is_booted or process.is_fenced or not replica.is_leader:
            return
        place, offset = Place(replica.topic_id.hex(), replica.index), replica.last_stable_offset
        if self._stable.get((place, replica.leader_epoch)) != offset:
            self._stable[place, replica.leader_epoch] = offset
            self.tell(
                StableSeen(
                    reader="watcher",
                    node=process.host.id,
                    asked_at=self.loop.time(),
                    place=place,
                    offset=offset,
                    epoch=replica.leader_epoch,
                    is_sure=replica.is_high_watermark_known,
                )
            )

    # -- the end of a run ---------------------------------------------------------------------------------------------

    async def wait_until_idle(self) -> None:
        await asyncio.sleep(CALM_TRANSACTIONS_SECONDS)
        self.is_finishing = True
        await self.until(lambda: all(each.is_done for each in self._copiers), CALM_SECONDS_MAX, "copiers to finish")
        self.have_clients_left = True  # otherwise the logs would keep growing
        await self.until(self._is_decided, CALM_SECONDS_MAX, "every transaction to be decided")
        self.have_clients_left = False
        for copier in self._copiers:
            await copier.last_position()
        for replica in self._replicas():
            self.events += final_reads(replica._node_id, replica, self.loop.time())
        for topic in sorted({event.place.topic for event in self.events if isinstance(event, StableSeen)}):
            if bytes.fromhex(topic) not in self.consensus.image.topics_by_id:
                self.tell(TopicGone(topic=topic))
        self.verdict = judge(self.events)
        if self.verdict.violations:
            raise Violation("; ".join(map(str, self.verdict.violations[:5])))

    def _is_decided(self) -> bool:
        transactions = self.consensus.image.transactions.values()
        if not all(each.state.is_idle for each in transactions) or not self._is_in_sync():
            return False
        replicas = self._replicas()
        ends = [
            (replica.log.log_end_offset, replica.high_watermark, replica.last_stable_offset) for replica in replicas
        ]
        return all(end == high_watermark == stable for end, high_watermark, stable in ends)

    def _replicas(self) -> list[Replica]:
        """Return the in-sync replicas of all partitions that clients write to."""
        found = []
        for topic in self.consensus.image.topics.values():
            for index, partition in enumerate(topic.partitions):
                for member in sorted(partition.isr) if not topic.internal else ():
                    process = self.hosts[member].process
                    replica = None if process is None else process.replicas.find(topic.name, index)
                    if replica is None:
                        raise Violation(f"node {member} is in the ISR but has no replica of {topic.name}-{index}")
                    found.append(replica)
        return found
