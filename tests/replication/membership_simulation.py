"""A simulation of a cluster that adds, drains and removes nodes under faults: see `world`.

Removed nodes continue to run: they keep their last metadata, follow and serve as before, and try to register again.
None of this may lose a record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from chronik.controller.partition_maintenance import build_drained_leader_changes
from chronik.metadata import levels
from chronik.metadata.commands.brokers import BrokerStatus, RegisterBroker
from chronik.metadata.commands.cluster import AddNode, CreateCluster, RemoveNode, SetFeatureLevel, UpdateNode
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Topic
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.replication.checker import Violation
from tests.replication.controller import SimulatedController
from tests.replication.host import Host, Process, TwinDisk
from tests.replication.simulation import ReplicationSimulation
from tests.replication.virtual_loop import VirtualClock

INITIAL_NON_MEMBERS: Final = 2
"""Number of nodes that wait to be added."""
MEMBERS_MIN: Final = 3
"""Minimum number of members, because topics have three replicas."""


class RejoiningProcess(Process):
    """A process that registers again when the cluster no longer knows it, as its heartbeats would tell it."""

    async def _register(self) -> None:
        await asyncio.sleep(self.chance.choice((0.0, 0.05, 0.5)))
        has_begun = False
        while True:
            if not self.is_registered and not self.is_cut_off:
                await self._register_once()
                if self.epoch >= 0 and not has_begun:
                    has_begun = True
                    self.replicas.start()
            await asyncio.sleep(0.2)

    async def _register_once(self) -> None:
        host = self.host
        supported = (levels.LOWEST, levels.HIGHEST)
        incarnation = self.store.incarnation
        command = RegisterBroker(host.id, "host", 9092, None, incarnation, host.directory_id, levels=supported)
        try:
            self.epoch = (await self.store.propose(command)).value
        except KafkaError as error:
            if host.id not in self.consensus.image.nodes and error.code is ErrorCode.INVALID_REGISTRATION:
                self.refusals += 1

    refusals = 0


class MembershipController(SimulatedController):
    """A controller that also adds, drains and removes nodes."""

    _world: ReplicationMembershipSimulation

    async def run(self) -> None:
        await asyncio.gather(super().run(), self._keep_relieving())

    async def _keep_relieving(self) -> None:
        consensus = self._world.consensus
        while True:
            await asyncio.sleep(0.3)
            for command in build_drained_leader_changes(consensus.image, 10):
                consensus.command(command)

    def random_actions(self) -> tuple[Callable[[], None], ...]:
        return (*super().random_actions(), self._drain, self._add, self._empty, self._remove, self._remove)

    def _drain(self) -> None:
        node = self._world.chance.choice(list(self._world.consensus.image.nodes.values()))
        self._world.consensus.command(UpdateNode(node.id, draining=self._world.chance.random() < 0.5))
        self._world.drained += 1

    def _add(self) -> None:
        absent = [host.id for host in self._world.hosts.values() if host.id not in self._world.consensus.image.nodes]
        if absent:
            node_id = self._world.chance.choice(absent)
            self._world.consensus.command(AddNode(node_id, "host", 5000 + node_id))
            self._world.added += 1

    def _empty(self) -> None:
        """Reassign a node's partitions to other nodes, one by one."""
        node_id = self._world.chance.choice(sorted(self._world.consensus.image.nodes))
        for topic in list(self._world.consensus.image.topics.values()):
            for index, partition in enumerate(topic.partitions):
                candidates = [each for each in self._world.replica_candidates() if each not in partition.replicas]
                if node_id in partition.replicas and candidates:
                    successor = self._world.chance.choice(candidates)
                    replicas = tuple(successor if each == node_id else each for each in partition.target_replicas)
                    self.reassign_to(topic, index, replicas)
        self._world.later(self._world.chance.uniform(0.2, 2.0), partial(self._remove_one, node_id))

    def _remove(self) -> None:
        self._remove_one(self._world.chance.choice(sorted(self._world.consensus.image.nodes)))

    def _remove_one(self, node_id: int) -> None:
        image = self._world.consensus.image
        if self._world.is_calm or self._world.replacing is not None or len(image.nodes) <= MEMBERS_MIN:
            return
        if self._world.consensus.command(RemoveNode(node_id)).code is ErrorCode.NONE:
            self._world.removed += 1


class ReplicationMembershipSimulation(ReplicationSimulation):
    """A simulation with membership changes."""

    def __init__(self, seed: int) -> None:
        self.added = self.removed = self.drained = 0
        super().__init__(seed)
        first = len(self.hosts)
        self.consensus.command(SetFeatureLevel(levels.FEATURE_NAME, levels.HIGHEST))
        for node_id in self.hosts:
            self.consensus.command(AddNode(node_id, "host", 5000 + node_id))
        self.consensus.command(CreateCluster("cluster", 0))
        for node_id in range(first + 1, first + 1 + INITIAL_NON_MEMBERS):
            clock = VirtualClock(self.loop, self.chance.uniform(0, 1000), self.chance.uniform(0.97, 1.03))
            self.hosts[node_id] = Host(node_id, self.new_id(), clock, TwinDisk(), 0.02)

    def new_controller(self) -> MembershipController:
        return MembershipController(self)

    def new_process(self, host: Host) -> RejoiningProcess:
        return RejoiningProcess(host, self.loop, self.chance, self.network, self.consensus)

    def members(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.id in self.consensus.image.nodes]

    def replica_candidates(self) -> list[int]:
        return sorted(broker.id for broker in self.consensus.image.brokers.values())

    def _committed(self) -> None:
        super()._committed()
        self._check_members()

    def _check_members(self) -> None:
        """Check that nodes outside the cluster have no replicas and are not registered."""
        image = self.consensus.image
        if not image.cluster_id:
            return
        for broker_id in image.brokers:
            if broker_id not in image.nodes:
                raise Violation(f"broker {broker_id} does not belong to the cluster")
        for topic in image.topics.values():
            for partition in topic.partitions:
                if not set(partition.replicas) <= image.nodes.keys():
                    raise Violation(f"{topic.name}: {partition} has replicas on removed nodes")

    def _is_in_sync(self) -> bool:
        """Also check that a drained node leads only partitions without another in-sync replica."""
        return super()._is_in_sync() and not any(map(self._could_be_led, self.consensus.image.topics.values()))

    def _could_be_led(self, topic: Topic) -> bool:
        brokers = self.consensus.image.brokers
        return any(
            brokers[partition.leader].status is BrokerStatus.MAINTENANCE
            and any(brokers[member].is_online for member in partition.isr)
            for partition in topic.partitions
            if partition.leader != NO_LEADER
        )

    @property
    def refusals(self) -> int:
        processes = [host.process for host in self.hosts.values()]
        return sum(process.refusals for process in processes if isinstance(process, RejoiningProcess))
