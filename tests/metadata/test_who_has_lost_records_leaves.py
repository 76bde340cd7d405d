"""A broker whose disk has lost records of a partition leaves its ISR, be it the last, and leads it no more."""

from __future__ import annotations

from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.partitions import (
    PARTITIONS_PER_COMMAND_MAX,
    ElectLeaders,
    PartitionKey,
    Reassignment,
    ReassignPartitions,
    ReportLostRecords,
)
from chronik.metadata.commands.topics import NO_LEADER
from chronik.protocol.errors import ErrorCode

from .world import World, assignment


def report(world: World, broker_id: int, epoch: int = NO_EPOCH) -> None:
    key = PartitionKey(world.image.topics["orders"].id, 0)
    world.accept(ReportLostRecords(broker_id, epoch, (key,)))


def test_one_after_the_other_leaves_until_nobody_leads() -> None:
    world = World(1, 2, 3)
    world.create("orders", assignment(1, 2, 3, leader=1))
    report(world, 1)
    assert (world.partition("orders").leader, world.partition("orders").isr) == (2, (2, 3))
    report(world, 3)
    assert (world.partition("orders").leader, world.partition("orders").isr) == (2, (2,))
    report(world, 2)
    assert (world.partition("orders").leader, world.partition("orders").isr) == (NO_LEADER, ())
    report(world, 2)
    assert not world.delta


def test_only_this_life_of_a_broker_may_say_so_and_of_so_many_at_once() -> None:
    world = World(1, 2)
    world.create("orders", assignment(1, 2, leader=1))
    key = PartitionKey(world.image.topics["orders"].id, 0)
    assert world.refuse(ReportLostRecords(1, 99, (key,)))[0] is ErrorCode.STALE_BROKER_EPOCH
    too_many = (key,) * (PARTITIONS_PER_COMMAND_MAX + 1)
    assert world.refuse(ReportLostRecords(1, NO_EPOCH, too_many))[0] is ErrorCode.INVALID_REQUEST
    world.accept(ReportLostRecords(1, NO_EPOCH, too_many[:-1]))


def test_the_last_one_leads_again_when_it_is_made_the_first_of_the_replicas_and_elected() -> None:
    """Its files are back; the others, which an unclean election would take before it, have less."""
    world = World(1, 2, 3)
    world.create("orders", assignment(2, 3, 1, isr=(1,), leader=1))
    report(world, 1)
    key = PartitionKey(world.image.topics["orders"].id, 0)
    world.accept(ReassignPartitions((Reassignment(key.topic_id, 0, (1, 2, 3)),)))
    partition = world.partition("orders")
    assert (partition.leader, partition.replicas, partition.is_reassigning) == (NO_LEADER, (1, 2, 3), False)
    world.accept(ElectLeaders((key,), unclean=True))
    assert (world.partition("orders").leader, world.partition("orders").isr) == (1, (1,))
