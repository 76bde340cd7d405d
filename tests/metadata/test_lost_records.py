"""Reports of lost records: the broker leaves the ISR, even as the last member, and stops leading."""

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

from .metadata_world import MetadataWorld, build_assignment


def report(world: MetadataWorld, broker_id: int, epoch: int = NO_EPOCH) -> None:
    key = PartitionKey(world.image.topics["orders"].id, 0)
    world.accept(ReportLostRecords(broker_id, epoch, (key,)))


def test_brokers_that_lost_records_leave_isr_until_no_leader_is_left() -> None:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1, 2, 3, leader=1))
    report(world, 1)
    assert (world.partition("orders").leader, world.partition("orders").isr) == (2, (2, 3))
    report(world, 3)
    assert (world.partition("orders").leader, world.partition("orders").isr) == (2, (2,))
    report(world, 2)
    assert (world.partition("orders").leader, world.partition("orders").isr) == (NO_LEADER, ())
    report(world, 2)
    assert not world.delta


def test_report_requires_current_broker_epoch_and_limits_partitions() -> None:
    world = MetadataWorld(1, 2)
    world.create("orders", build_assignment(1, 2, leader=1))
    key = PartitionKey(world.image.topics["orders"].id, 0)
    assert world.reject(ReportLostRecords(1, 99, (key,)))[0] is ErrorCode.STALE_BROKER_EPOCH
    too_many = (key,) * (PARTITIONS_PER_COMMAND_MAX + 1)
    assert world.reject(ReportLostRecords(1, NO_EPOCH, too_many))[0] is ErrorCode.INVALID_REQUEST
    world.accept(ReportLostRecords(1, NO_EPOCH, too_many[:-1]))


def test_restored_replica_leads_again_after_reordering_and_unclean_election() -> None:
    """Its files were restored; other replicas, which an unclean election would prefer, have fewer records."""
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(2, 3, 1, isr=(1,), leader=1))
    report(world, 1)
    key = PartitionKey(world.image.topics["orders"].id, 0)
    world.accept(ReassignPartitions((Reassignment(key.topic_id, 0, (1, 2, 3)),)))
    partition = world.partition("orders")
    assert (partition.leader, partition.replicas, partition.is_reassigning) == (NO_LEADER, (1, 2, 3), False)
    world.accept(ElectLeaders((key,), unclean=True))
    assert (world.partition("orders").leader, world.partition("orders").isr) == (1, (1,))
