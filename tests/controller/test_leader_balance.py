"""Selection of partition leaders by the controller: preferred leaders, drained leaders and leaderless partitions."""

from __future__ import annotations

from chronik.controller.leader_balance import find_unbalanced_partitions, replace_drained_leaders
from chronik.controller.leaderless_partitions import can_elect_uncleanly, find_leaderless_partitions
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
from chronik.metadata.commands.topics import CreateTopic
from chronik.metadata.names import META_TOPIC
from tests.metadata.metadata_world import MetadataWorld, build_assignment, build_id


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
    assert replace_drained_leaders(world.image, 10) == []
    for index, follower in ((0, 2), (1, 3)):
        epochs = world.partition("orders", index)
        isr = IsrMember(1, NO_EPOCH), IsrMember(follower, NO_EPOCH)
        change = IsrChange(topic.id, index, epochs.leader_epoch, epochs.partition_epoch, isr)
        assert world.accept(UpdateISR(1, NO_EPOCH, (change,))).failures == ()
    relieved = replace_drained_leaders(world.image, 10)
    assert [(each.partition, each.leader) for each in relieved] == [(0, 2), (1, 3)]
    assert replace_drained_leaders(world.image, 1) == relieved[:1]
    for command in relieved:
        world.accept(command)
    assert replace_drained_leaders(world.image, 10) == []
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
