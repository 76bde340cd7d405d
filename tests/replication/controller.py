"""A simulated controller: fences brokers, moves leaders, reassigns partitions, and creates and deletes topics and
records.

It acts at random, early and sometimes wrongly, which must never lose a record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from chronik.broker.replica import Replica
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.partitions import (
    ElectLeaders,
    PartitionKey,
    Reassignment,
    ReassignPartitions,
    SetPartitionLeader,
)
from chronik.metadata.commands.topics import CreateTopic, DeleteTopic, PartitionAssignment
from chronik.metadata.records import Topic
from chronik.protocol.errors import KafkaError
from tests.replication.host import Host

if TYPE_CHECKING:
    from tests.replication.simulation import ReplicationSimulation

CONFIGS: Final = {"internal.segment.bytes": "1500"}
"""Topic configs with small segments, so that logs have several."""


class SimulatedController:
    """A controller with random actions."""

    def __init__(self, world: ReplicationSimulation) -> None:
        self._world = world

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._world.chance.uniform(0.05, 0.4))
            for host in self._world.hosts.values():
                self._judge(host)
            if not self._world.is_calm and self._world.replacing is None:
                self._world.chance.choice(self.random_actions())()

    def random_actions(self) -> tuple[Callable[[], None], ...]:
        """Return the possible actions."""
        return (self._move_leader, self._prefer, self._reassign, self._drop_and_add, self._topics, self._delete)

    def create_initial_topics(self) -> None:
        """Create the initial topics, before any faults."""
        for _ in range(2):
            self.create_topic()

    def _judge(self, host: Host) -> None:
        """Fence a stopped broker after a while, and sometimes a running one."""
        broker = self._world.consensus.image.brokers.get(host.id)
        if broker is None:
            return
        is_heard = host.is_running and self._world.is_up(host)
        if is_heard and broker.is_fenced:
            self._set_status(host, BrokerStatus.ONLINE)
        elif self._world.is_calm or self._world.replacing is not None:
            return
        elif not broker.is_fenced and self._world.chance.random() < (0.02 if is_heard else 0.3):
            self._set_status(host, BrokerStatus.OFFLINE)

    def _set_status(self, host: Host, status: BrokerStatus) -> None:
        consensus = self._world.consensus
        consensus.command(UpdateBrokerStatus(host.id, status, consensus.image.brokers[host.id].epoch))

    def _move_leader(self) -> None:
        for topic, index, partition in self._world.some_partitions():
            leader = self._world.chance.choice(partition.replicas)
            self._world.consensus.command(SetPartitionLeader(topic.id, index, leader))

    def _prefer(self) -> None:
        for topic, index, _ in self._world.some_partitions():
            self._world.consensus.command(ElectLeaders((PartitionKey(topic.id, index),)))

    def _reassign(self) -> None:
        for topic, index, partition in self._world.some_partitions():
            replicas: tuple[int, ...] | None = None
            if not partition.is_reassigning or self._world.chance.random() < 0.5:
                replicas = self._some_places(self._world.chance.randint(2, 3))
            self.reassign_to(topic, index, replicas)

    def _some_places(self, count: int) -> tuple[int, ...]:
        """Return up to `count` random nodes."""
        places = self._world.replica_candidates()
        return tuple(self._world.chance.sample(places, min(count, len(places))))

    def _drop_and_add(self) -> None:
        """Remove a replica and add it again, possibly before its node has noticed."""
        for topic, index, partition in self._world.some_partitions():
            others = [replica for replica in partition.replicas if replica != partition.leader]
            if len(others) > 1 and not partition.is_reassigning:
                dropped = self._world.chance.choice(others)
                if self._world.chance.random() < 0.5:
                    self._world.isolate(self._world.hosts[dropped])
                self.reassign_to(topic, index, tuple(node for node in partition.replicas if node != dropped))
                back = partial(self.reassign_to, topic, index, partition.replicas)
                self._world.later(self._world.chance.uniform(0.001, 0.3), back)

    def reassign_to(self, topic: Topic, index: int, replicas: tuple[int, ...] | None) -> None:
        self._world.consensus.command(ReassignPartitions((Reassignment(topic.id, index, replicas),)))

    def _topics(self) -> None:
        topics = [topic for topic in self._world.consensus.image.topics.values() if self.may_be_deleted(topic)]
        if len(topics) < 3:
            self.create_topic()
        elif self._world.chance.random() < 0.5:
            topic = self._world.chance.choice(topics)
            self._world.note("deleted", topic.name)
            self._world.consensus.command(DeleteTopic(topic.id))

    def may_be_deleted(self, topic: Topic) -> bool:
        return True

    def create_topic(self) -> None:
        online = [broker.id for broker in self._world.consensus.image.brokers.values() if broker.is_online]
        assignments: list[PartitionAssignment] = []
        for _ in range(self._world.chance.randint(1, 2)):
            replicas = self._some_places(3)
            isr = tuple(replica for replica in replicas if replica in online)
            if not isr:
                return
            assignments.append(PartitionAssignment(replicas, isr, isr[0]))
        name = f"topic-{self._world.chance.choice('abc')}"
        self._world.consensus.command(CreateTopic(self._world.new_id(), name, tuple(assignments), CONFIGS, 0))

    def _delete(self) -> None:
        """Delete records, if this seed includes that."""
        for topic, index, partition in self._world.some_partitions() if self._world.deletes_records else ():
            host = self._world.hosts.get(partition.leader)
            process = host.process if host is not None and host.is_running else None
            replica = process.led(topic.name, index) if process is not None else None
            if process is None or replica is None or replica.topic_id != topic.id or not replica.high_watermark:
                continue
            batches = self._world.checker.partitions[topic.id, index].batches
            ends = [batch.next_offset for batch in batches if batch.next_offset <= replica.high_watermark]
            if ends:
                offset = self._world.chance.choice(ends[: len(ends) // 2 + 1])
                self._world.checker.on_deletion((topic.id, index), offset)
                delete = partial(self._delete_before, replica, offset)
                self._world.loop.call_soon(delete, context=process.life.context)

    def _delete_before(self, replica: Replica, offset: int) -> None:
        if replica.is_leader:
            self._world.loop.create_task(_delete_before(replica, offset))


async def _delete_before(replica: Replica, offset: int) -> None:
    with suppress(KafkaError):  # the topic may have been deleted
        await replica.delete_records_before(offset)
