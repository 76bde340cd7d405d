"""Maintenance of partition leaders: preferred, drained and missing leaders.

The controller checks all partitions only if one may lack a leader, and not for every topic change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.configs.resolver import ConfigResolver
from chronik.controller import partition_maintenance
from chronik.controller.partition_maintenance import (
    LeaderlessPartition,
    PartitionMaintenance,
    build_drained_leader_changes,
    can_elect_uncleanly,
    find_leaderless_partitions,
    find_unbalanced_partitions,
)
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.partitions import (
    IsrChange,
    IsrMember,
    PartitionKey,
    Reassignment,
    ReassignPartitions,
    UpdateISR,
)
from chronik.metadata.commands.topics import CreateTopic, DeleteTopic, UpdateTopicConfig
from chronik.metadata.delta import Delta
from chronik.metadata.image import Image
from chronik.metadata.names import META_TOPIC
from chronik.metadata.stores.raft_store import RaftStore
from tests.metadata.metadata_world import MetadataWorld, build_assignment, build_id


class MaintenanceHarness:
    """Partition maintenance that receives every delta of a metadata world."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = MetadataWorld(1, 2)
        self.checks = 0
        self._subscribers: list[Callable[[Delta], None]] = []
        store = SimpleNamespace(image=self.world.image, subscribe=self._subscribers.append, propose=self._propose)
        clock = SimpleNamespace(monotonic=lambda: 0.0)
        configs = SimpleNamespace(broker_int=lambda name: 300, topic_value=lambda configs, name: "false")
        monkeypatch.setattr(partition_maintenance, find_leaderless_partitions.__name__, self._record_check)
        self._maintenance = PartitionMaintenance(
            cast(RaftStore, store), cast(ConfigResolver, configs), cast(Any, clock)
        )
        self.has_checked()

    async def _propose(self, *_: Any, **__: Any) -> None:
        raise AssertionError("no election is expected")

    def _record_check(self, image: Image) -> Iterator[LeaderlessPartition]:
        self.checks += 1
        return find_leaderless_partitions(image)

    def publish(self) -> None:
        (on_delta,) = self._subscribers
        on_delta(self.world.delta)

    def has_checked(self) -> bool:
        before = self.checks
        asyncio.run(self._maintenance.check())
        return self.checks > before


def test_topic_changes_do_not_trigger_partition_check(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = MaintenanceHarness(monkeypatch)
    topic = harness.world.create("orders", build_assignment(1, 2), build_assignment(2, 1))
    harness.publish()
    assert not harness.has_checked()
    harness.world.accept(UpdateTopicConfig(topic.id, {"retention.ms": "1000"}))
    harness.publish()
    assert not harness.has_checked()
    harness.world.accept(DeleteTopic(topic.id))
    harness.publish()
    assert not harness.has_checked()


def test_broker_change_triggers_partition_check(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = MaintenanceHarness(monkeypatch)
    harness.world.create("orders", build_assignment(1, 2))
    harness.world.accept(UpdateBrokerStatus(1, BrokerStatus.OFFLINE))
    harness.publish()
    assert harness.has_checked()
    assert not harness.has_checked(), "once"


def test_change_of_leaderless_topic_triggers_partition_check(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = MaintenanceHarness(monkeypatch)
    topic = harness.world.create("orders", build_assignment(1, 2), build_assignment(1, 2, isr=(), leader=-1))
    harness.publish()
    assert harness.has_checked()
    harness.world.accept(UpdateTopicConfig(topic.id, {"unclean.leader.election.enable": "true"}))
    harness.publish()
    assert harness.has_checked()
    harness.world.accept(DeleteTopic(topic.id))
    harness.publish()
    assert harness.has_checked(), "the partition would be reported again"


def out_of_balance(world: MetadataWorld, percent: int = 10) -> list[tuple[bytes, int]]:
    return [(key.topic_id, key.partition) for key in find_unbalanced_partitions(world.image, percent)]


def test_balanced_leaders_are_unchanged() -> None:
    world = MetadataWorld(1, 2)
    world.create("orders", build_assignment(1, 2), build_assignment(2, 1))
    assert out_of_balance(world, 0) == []


def test_preferred_leader_is_restored_above_imbalance_limit() -> None:
    world = MetadataWorld(1, 2)
    topic = world.create("orders", *[build_assignment(1, 2)] * 9, build_assignment(1, 2, leader=2))
    assert out_of_balance(world, 10) == [], "exactly 10 % does not exceed the limit"
    assert out_of_balance(world, 9) == [(topic.id, 9)]


def test_preferred_leader_must_be_online_and_in_sync() -> None:
    world = MetadataWorld(1, 2, 3)
    topic = world.create("orders", build_assignment(1, 2, leader=2), build_assignment(1, 2, isr=(2,), leader=2))
    assert out_of_balance(world) == [(topic.id, 0)]
    world.accept(UpdateBrokerStatus(1, BrokerStatus.MAINTENANCE))
    assert out_of_balance(world) == []


def test_reassigning_and_metadata_partitions_are_excluded() -> None:
    world = MetadataWorld(1, 2, 3)
    topic = world.create("orders", build_assignment(1, 2, leader=2))
    world.accept(CreateTopic(build_id(5), META_TOPIC, (build_assignment(1, 2, leader=2),), {}, 0, internal=True))
    assert out_of_balance(world) == [(topic.id, 0)]
    world.accept(ReassignPartitions((Reassignment(topic.id, 0, (1, 3)),)))
    assert out_of_balance(world) == []


def test_drained_leader_is_replaced_by_in_sync_replica() -> None:
    world = MetadataWorld(1, 2, 3)
    topic = world.create(
        "orders", build_assignment(1, 2, isr=(1,)), build_assignment(1, 3, isr=(1,)), build_assignment(2, 3)
    )
    world.accept(UpdateBrokerStatus(1, BrokerStatus.MAINTENANCE))
    assert world.partition("orders").leader == 1, "no other replica is in sync"
    assert build_drained_leader_changes(world.image, 10) == []
    for index, follower in ((0, 2), (1, 3)):
        epochs = world.partition("orders", index)
        isr = IsrMember(1, NO_EPOCH), IsrMember(follower, NO_EPOCH)
        change = IsrChange(topic.id, index, epochs.leader_epoch, epochs.partition_epoch, isr)
        assert world.accept(UpdateISR(1, NO_EPOCH, (change,))).failures == ()
    relieved = build_drained_leader_changes(world.image, 10)
    assert [(each.partition, each.leader) for each in relieved] == [(0, 2), (1, 3)]
    assert build_drained_leader_changes(world.image, 1) == relieved[:1]
    for command in relieved:
        world.accept(command)
    assert build_drained_leader_changes(world.image, 10) == []
    assert [partition.leader for partition in world.image.topics["orders"].partitions] == [2, 3, 2]


def test_leaderless_and_lost_partitions_are_distinguished() -> None:
    world = MetadataWorld(1, 2)
    topic = world.create("orders", build_assignment(1, 2), build_assignment(1, 2, isr=(1,)))
    world.create("other", build_assignment(1, 2, isr=(1,)))
    world.accept(CreateTopic(build_id(5), META_TOPIC, (build_assignment(1),), {}, 0, internal=True))
    world.accept(UpdateBrokerStatus(1, BrokerStatus.OFFLINE))
    waiting, other = find_leaderless_partitions(world.image)
    assert waiting.key == PartitionKey(topic.id, 1)
    assert str(waiting) == "orders-1"
    assert not waiting.is_lost
    assert can_elect_uncleanly(world.image, waiting, lambda topic: topic.name == "orders")
    assert not can_elect_uncleanly(world.image, other, lambda topic: topic.name == "orders")
    world.register(1, incarnation_number=1, directory_number=77)
    lost, _ = find_leaderless_partitions(world.image)
    assert lost.is_lost
    world.accept(UpdateBrokerStatus(1, BrokerStatus.OFFLINE))
    world.accept(UpdateBrokerStatus(2, BrokerStatus.OFFLINE))
    assert not can_elect_uncleanly(world.image, lost, lambda topic: True), "no replica is online"
