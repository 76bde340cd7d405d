"""Preferred and unclean leader elections; each partition of a command succeeds or fails separately."""

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

from .metadata_world import MetadataWorld, build_assignment, build_id

OFFLINE, ONLINE, MAINTENANCE = BrokerStatus.OFFLINE, BrokerStatus.ONLINE, BrokerStatus.MAINTENANCE


def elect(world: MetadataWorld, number: int = 0, *, unclean: bool = False) -> ErrorCode:
    key = PartitionKey(world.image.topics["orders"].id, number)
    failures = world.accept(ElectLeaders((key,), unclean)).failures
    return failures[0].code if failures else ErrorCode.NONE


def test_preferred_election_elects_first_replica() -> None:
    world = MetadataWorld(1, 2)
    world.create("orders", build_assignment(1, 2, leader=2))
    assert elect(world) is ErrorCode.NONE
    assert world.partition("orders") == Partition((1, 2), (1, 2), 1, 1, 1)
    assert elect(world) is ErrorCode.ELECTION_NOT_NEEDED
    assert not world.delta


def test_preferred_election_requires_in_sync_online_replica() -> None:
    world = MetadataWorld(1, 2)
    world.create("orders", build_assignment(1, 2, isr=(2,), leader=2), build_assignment(1, 2, leader=2))
    rejected = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(world, 0) is rejected
    world.accept(UpdateBrokerStatus(1, MAINTENANCE))
    assert elect(world, 1) is rejected
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    assert elect(world, 1) is rejected
    world.accept(UpdateBrokerStatus(1, ONLINE))
    assert elect(world, 1) is rejected, "the broker is not in sync yet"


def test_unclean_election_reduces_isr_to_new_leader() -> None:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1, 2, 3, isr=(1,)))
    assert elect(world, unclean=True) is ErrorCode.ELECTION_NOT_NEEDED
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    world.accept(UpdateBrokerStatus(2, MAINTENANCE))
    assert world.partition("orders").leader == NO_LEADER
    assert elect(world, unclean=True) is ErrorCode.NONE
    elected = world.partition("orders")
    assert (elected.leader, elected.isr, elected.leader_epoch) == (3, (3,), 2), (
        "brokers in maintenance are the last choice"
    )


def test_unclean_election_fails_without_online_replica() -> None:
    world = MetadataWorld(1, 2)
    world.create("orders", build_assignment(1))
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    assert elect(world, unclean=True) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_unclean_election_recovers_partition_after_disk_loss() -> None:
    world = MetadataWorld(1, 2)
    world.create("orders", build_assignment(1, 2, isr=(1,)))
    world.register(1, incarnation_number=1, directory_number=77)
    assert world.partition("orders").isr == ()
    assert elect(world, unclean=True) is ErrorCode.NONE
    assert world.partition("orders").isr == (world.partition("orders").leader,)


def test_unclean_election_prefers_original_over_added_replicas() -> None:
    world = MetadataWorld(1, 2, 3)
    topic = world.create("orders", build_assignment(1, 2, isr=(1,)))
    world.accept(ReassignPartitions((Reassignment(topic.id, 0, (3, 1)),)))
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    assert elect(world, unclean=True) is ErrorCode.NONE
    assert world.partition("orders").leader == 2


def test_elections_of_many_partitions_succeed_or_fail_separately() -> None:
    world = MetadataWorld(1, 2)
    most = PARTITIONS_PER_COMMAND_MAX
    topic = world.create("orders", *[build_assignment(1, 2, leader=2)] * (most - 1), build_assignment(1, 2))
    unknown = PartitionKey(build_id(9), 0)
    keys = (unknown, *(PartitionKey(topic.id, number) for number in range(1, most)))
    began = time.thread_time()
    failures = world.accept(ElectLeaders(keys)).failures
    assert time.thread_time() - began < 1, "must not block the event loop"
    assert [(failure.item, failure.code) for failure in failures] == [
        (0, ErrorCode.UNKNOWN_TOPIC_ID),
        (most - 1, ErrorCode.ELECTION_NOT_NEEDED),
    ]
    leaders = [partition.leader for partition in world.image.topics["orders"].partitions]
    assert leaders == [2] + [1] * (most - 1)
    assert len(world.delta.topics) == 1
    assert world.reject(ElectLeaders((*keys, unknown)))[0] is ErrorCode.INVALID_REQUEST
