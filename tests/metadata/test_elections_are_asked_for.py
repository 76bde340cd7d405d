"""Preferred and unclean elections: many partitions in one command, each for itself."""

from __future__ import annotations

import time

from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.partitions import (
    PARTITIONS_PER_COMMAND_MAX,
    ElectLeaders,
    PartitionKey,
    Reassignment,
    ReassignPartitions,
)
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Partition
from chronik.protocol.errors import ErrorCode

from .world import World, assignment, some_id

OFFLINE, ONLINE, MAINTENANCE = BrokerStatus.OFFLINE, BrokerStatus.ONLINE, BrokerStatus.MAINTENANCE


def elect(world: World, number: int = 0, *, unclean: bool = False) -> ErrorCode:
    key = PartitionKey(world.image.topics["orders"].id, number)
    failures = world.accept(ElectLeaders((key,), unclean)).failures
    return failures[0].code if failures else ErrorCode.NONE


def test_the_preferred_leader_is_the_first_replica() -> None:
    world = World(1, 2)
    world.create("orders", assignment(1, 2, leader=2))
    assert elect(world) is ErrorCode.NONE
    assert world.partition("orders") == Partition((1, 2), (1, 2), 1, 1, 1)
    assert elect(world) is ErrorCode.ELECTION_NOT_NEEDED
    assert not world.delta


def test_a_preferred_leader_must_be_in_sync_and_online() -> None:
    world = World(1, 2)
    world.create("orders", assignment(1, 2, isr=(2,), leader=2), assignment(1, 2, leader=2))
    refused = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(world, 0) is refused
    world.accept(UpdateBrokerStatus(1, MAINTENANCE))
    assert elect(world, 1) is refused
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    assert elect(world, 1) is refused
    world.accept(UpdateBrokerStatus(1, ONLINE))
    assert elect(world, 1) is refused, "it has to catch up first"


def test_an_unclean_leader_is_the_whole_isr() -> None:
    world = World(1, 2, 3)
    world.create("orders", assignment(1, 2, 3, isr=(1,)))
    assert elect(world, unclean=True) is ErrorCode.ELECTION_NOT_NEEDED
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    world.accept(UpdateBrokerStatus(2, MAINTENANCE))
    assert world.partition("orders").leader == NO_LEADER
    assert elect(world, unclean=True) is ErrorCode.NONE
    elected = world.partition("orders")
    assert (elected.leader, elected.isr, elected.leader_epoch) == (3, (3,), 2), "those in maintenance come last"


def test_an_unclean_election_needs_somebody() -> None:
    world = World(1, 2)
    world.create("orders", assignment(1))
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    assert elect(world, unclean=True) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_a_lost_disk_can_be_done_without() -> None:
    world = World(1, 2)
    world.create("orders", assignment(1, 2, isr=(1,)))
    world.register(1, life=1, disk=77)
    assert world.partition("orders").isr == ()
    assert elect(world, unclean=True) is ErrorCode.NONE
    assert world.partition("orders").isr == (world.partition("orders").leader,)


def test_a_replica_that_is_only_being_added_is_the_last_choice() -> None:
    world = World(1, 2, 3)
    topic = world.create("orders", assignment(1, 2, isr=(1,)))
    world.accept(ReassignPartitions((Reassignment(topic.id, 0, (3, 1)),)))
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    assert elect(world, unclean=True) is ErrorCode.NONE
    assert world.partition("orders").leader == 2


def test_many_are_elected_at_once_each_for_itself() -> None:
    world = World(1, 2)
    most = PARTITIONS_PER_COMMAND_MAX
    topic = world.create("orders", *[assignment(1, 2, leader=2)] * (most - 1), assignment(1, 2))
    unknown = PartitionKey(some_id(9), 0)
    keys = (unknown, *(PartitionKey(topic.id, number) for number in range(1, most)))
    began = time.thread_time()
    failures = world.accept(ElectLeaders(keys)).failures
    assert time.thread_time() - began < 1, "one turn of the loop: some milliseconds"
    assert [(failure.item, failure.code) for failure in failures] == [
        (0, ErrorCode.UNKNOWN_TOPIC_ID),
        (most - 1, ErrorCode.ELECTION_NOT_NEEDED),
    ]
    leaders = [partition.leader for partition in world.image.topics["orders"].partitions]
    assert leaders == [2] + [1] * (most - 1)
    assert len(world.delta.topics) == 1
    assert world.refuse(ElectLeaders((*keys, unknown)))[0] is ErrorCode.INVALID_REQUEST
