"""Partition commands: reassignments, preferred and unclean leader elections, and reports of lost records."""

from __future__ import annotations

import random
import time

import pytest

from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.brokers import BrokerStatus, RegisterBroker, RemoveBroker, UpdateBrokerStatus
from chronik.metadata.commands.cluster import AddNode
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.partitions import (
    PARTITIONS_PER_COMMAND_MAX,
    AssignPartition,
    ElectLeaders,
    IsrChange,
    IsrMember,
    PartitionKey,
    Reassignment,
    ReassignPartitions,
    ReportLostRecords,
    SetPartitionLeader,
    UpdateISR,
)
from chronik.metadata.commands.topics import NO_LEADER, CreatePartitions, DeleteTopic
from chronik.metadata.hashing import PARTITION, compute_partition_hash, record_hash
from chronik.metadata.records import Partition
from chronik.metadata.snapshot import decode_snapshot
from chronik.protocol.errors import ErrorCode
from tests.run_size import SEED, sized

from .metadata_world import (
    MetadataWorld,
    assert_partition_invariants,
    build_assignment,
    build_id,
    encode_verified_snapshot,
)

OFFLINE, ONLINE, MAINTENANCE = BrokerStatus.OFFLINE, BrokerStatus.ONLINE, BrokerStatus.MAINTENANCE


def reassign(world: MetadataWorld, *replicas: int, factor_may_change: bool = True) -> ErrorCode:
    """Reassign the partition of `orders` and return the error code."""
    change = Reassignment(world.image.topics["orders"].id, 0, replicas)
    return outcome(world, ReassignPartitions((change,), factor_may_change))


def cancel(world: MetadataWorld) -> ErrorCode:
    return outcome(world, ReassignPartitions((Reassignment(world.image.topics["orders"].id, 0, None),)))


def outcome(world: MetadataWorld, command: ReassignPartitions) -> ErrorCode:
    failures = world.accept(command).failures
    return failures[0].code if failures else ErrorCode.NONE


def in_sync(world: MetadataWorld, *members: int) -> None:
    """Let the leader report these replicas as in sync."""
    topic, partition, brokers = world.image.topics["orders"], world.partition("orders"), world.image.brokers
    isr = tuple(IsrMember(member, brokers[member].epoch) for member in members)
    change = IsrChange(topic.id, 0, partition.leader_epoch, partition.partition_epoch, isr)
    assert not world.accept(UpdateISR(partition.leader, brokers[partition.leader].epoch, (change,))).failures


def test_reassignment_adds_replicas_first_and_removes_when_in_sync() -> None:
    world = MetadataWorld(1, 2, 3, 4)
    world.create("orders", build_assignment(1, 2))
    assert reassign(world, 3, 4) is ErrorCode.NONE
    moving = Partition((3, 4, 1, 2), (1, 2), 1, 0, 1, adding=(3, 4), removing=(1, 2))
    assert world.partition("orders") == moving
    assert (moving.target_replicas, moving.original_replicas) == ((3, 4), (1, 2))
    in_sync(world, 1, 2, 3)
    assert world.partition("orders").is_reassigning
    assert world.partition("orders").leader == 1
    in_sync(world, 1, 2, 3, 4)
    assert world.partition("orders") == Partition((3, 4), (3, 4), 3, 1, 3)
    assert len(world.delta.topics) == 1


def test_leader_epoch_increases_when_replica_is_removed() -> None:
    """A removed replica may not know yet. Its fetches in the old epoch are fenced."""
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1, 2))
    reassign(world, 3, 1)
    assert world.partition("orders").leader_epoch == 0, "no replica was removed yet"
    in_sync(world, 1, 3)
    assert world.partition("orders") == Partition((3, 1), (3, 1), 1, 1, 2)


def test_reassignment_can_change_replication_factor() -> None:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1))
    assert reassign(world, 1, 2, 3) is ErrorCode.NONE
    assert world.partition("orders") == Partition((1, 2, 3), (1,), 1, 0, 1, adding=(2, 3))
    in_sync(world, 1, 2, 3)
    assert world.partition("orders") == Partition((1, 2, 3), (1, 2, 3), 1, 0, 2)
    assert reassign(world, 2) is ErrorCode.NONE
    assert world.partition("orders") == Partition((2,), (2,), 2, 1, 3), "the remaining replica was in sync already"


def test_replication_factor_change_is_rejected_if_not_allowed() -> None:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1, 2))
    assert reassign(world, 1, 2, 3, factor_may_change=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(world, 1, factor_may_change=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(world, 1, 3, factor_may_change=False) is ErrorCode.NONE
    assert reassign(world, 3, 2, factor_may_change=False) is ErrorCode.NONE, "the target counts"


def test_reassignment_waits_for_out_of_sync_target_replica() -> None:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1, 2, 3, isr=(1, 3)))
    reassign(world, 2, 1)
    assert world.partition("orders") == Partition((2, 1, 3), (1, 3), 1, 0, 1, removing=(3,))
    in_sync(world, 1, 2)
    assert world.partition("orders") == Partition((2, 1), (2, 1), 1, 1, 2)


def test_reassignment_to_same_replicas_is_no_change_but_reordering_is() -> None:
    world = MetadataWorld(1, 2)
    world.create("orders", build_assignment(1, 2))
    assert reassign(world, 1, 2) is ErrorCode.NONE
    assert not world.delta
    assert reassign(world, 2, 1) is ErrorCode.NONE
    assert world.partition("orders") == Partition((2, 1), (2, 1), 1, 0, 1)


def test_cancelled_reassignment_restores_original_replicas() -> None:
    world = MetadataWorld(1, 2, 3, 4)
    world.create("orders", build_assignment(1, 2))
    assert cancel(world) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    reassign(world, 3, 4)
    in_sync(world, 1, 2, 3)
    assert cancel(world) is ErrorCode.NONE
    assert world.partition("orders") == Partition((1, 2), (1, 2), 1, 1, 3)
    assert cancel(world) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_cancelled_reassignment_removes_leadership_from_added_replica() -> None:
    world = MetadataWorld(1, 2, 3, 4)
    topic = world.create("orders", build_assignment(1, 2))
    reassign(world, 3, 4)
    in_sync(world, 1, 2, 3)
    world.accept(SetPartitionLeader(topic.id, 0, 3))
    assert cancel(world) is ErrorCode.NONE
    assert world.partition("orders") == Partition((1, 2), (1, 2), 1, 2, 4)


def test_cancel_is_rejected_if_only_added_replicas_are_in_sync() -> None:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1))
    reassign(world, 2, 3)
    in_sync(world, 1, 2)
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    alone = world.partition("orders")
    assert (alone.leader, alone.isr) == (2, (2,))
    assert cancel(world) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(world, 1, 3) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.partition("orders") == alone


def test_second_reassignment_replaces_the_first() -> None:
    world = MetadataWorld(1, 2, 3, 4)
    world.create("orders", build_assignment(1, 2))
    reassign(world, 3, 2)
    in_sync(world, 1, 2)
    assert reassign(world, 4, 2) is ErrorCode.NONE
    assert world.partition("orders") == Partition((4, 2, 1), (2, 1), 1, 1, 3, adding=(4,), removing=(1,))
    assert cancel(world) is ErrorCode.NONE
    assert sorted(world.partition("orders").replicas) == [1, 2]
    reassign(world, 3, 2)
    assert reassign(world, 1, 2) is ErrorCode.NONE, "the original replicas"
    assert world.partition("orders").replicas == (1, 2)
    assert not world.partition("orders").is_reassigning


def test_invalid_reassignment_is_rejected() -> None:
    world = MetadataWorld(1, 2)
    world.accept(AddNode(5, "h", 5005))
    topic = world.create("orders", build_assignment(1))
    assert reassign(world) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(world, 1, 1) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(world, 1, 9) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(world, 1, 5) is ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a node that has never registered"
    wanted = (Reassignment(topic.id, 1, (1,)), Reassignment(build_id(9), 0, (1,)), Reassignment(topic.id, 0, (1, 2)))
    failures = world.accept(ReassignPartitions(wanted)).failures
    codes = [(failure.item, failure.code) for failure in failures]
    assert codes == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (1, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert world.partition("orders").adding == (2,), "each change succeeds or fails separately"


def test_number_of_reassignments_per_command_is_limited() -> None:
    world = MetadataWorld(1, 2)
    most = PARTITIONS_PER_COMMAND_MAX
    topic = world.create("orders", *[build_assignment(1)] * (most + 1))
    changes = tuple(Reassignment(topic.id, number, (2,)) for number in range(most + 1))
    assert world.reject(ReassignPartitions(changes))[0] is ErrorCode.INVALID_REQUEST
    assert not world.accept(ReassignPartitions(changes[:most])).failures
    assert sum(partition.is_reassigning for partition in world.image.topics["orders"].partitions) == most


def test_topic_cannot_be_enlarged_or_assigned_during_reassignment() -> None:
    world = MetadataWorld(1, 2)
    topic = world.create("orders", build_assignment(1))
    reassign(world, 2)
    refused = ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert world.reject(CreatePartitions(topic.id, 1, (build_assignment(1),)))[0] is refused
    assert world.reject(AssignPartition(topic.id, 0, (1, 2)))[0] is refused


def test_topic_can_be_deleted_during_reassignment() -> None:
    world = MetadataWorld(1, 2)
    topic = world.create("orders", build_assignment(1))
    reassign(world, 2)
    world.accept(DeleteTopic(topic.id))
    assert "orders" not in world.image.topics


def test_fenced_broker_delays_completion_of_reassignment() -> None:
    world = MetadataWorld(1, 2, 3, 4)
    world.create("orders", build_assignment(1, 2))
    reassign(world, 3, 4)
    in_sync(world, 1, 2, 3)
    world.accept(UpdateBrokerStatus(3, OFFLINE))
    assert world.partition("orders").isr == (1, 2)
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    assert (world.partition("orders").leader, world.partition("orders").isr) == (2, (2,))
    world.accept(UpdateBrokerStatus(3, ONLINE))
    in_sync(world, 2, 3, 4)
    done = world.partition("orders")
    assert (done.replicas, done.isr, done.leader) == ((3, 4), (3, 4), 3)
    assert not done.is_reassigning


def test_disk_loss_of_sole_replica_leaves_partition_offline() -> None:
    world = MetadataWorld(1, 2)
    world.create("orders", build_assignment(1))
    reassign(world, 2)
    world.register(1, incarnation_number=1, directory_number=77)
    lost = world.partition("orders")
    assert (lost.replicas, lost.isr, lost.leader) == ((2, 1), (), NO_LEADER)
    assert cancel(world) is ErrorCode.NONE, "no records can be lost any more"


def test_unclean_leader_that_is_sole_target_completes_reassignment() -> None:
    world = MetadataWorld(1, 2)
    topic = world.create("orders", build_assignment(1))
    reassign(world, 2)
    world.accept(UpdateBrokerStatus(1, OFFLINE))
    world.accept(SetPartitionLeader(topic.id, 0, 2, unclean=True))
    done = world.partition("orders")
    assert (done.replicas, done.isr, done.leader, done.is_reassigning) == ((2,), (2,), 2, False)


def test_snapshot_contains_reassignment_and_old_hashes_stay_valid() -> None:
    world = MetadataWorld(1, 2, 3)
    world.create("orders", build_assignment(1, 2))
    settled = world.partition("orders")
    before = ((1, 2), (1, 2), 1, 0, 0, 0, 0)  # a partition before reassignments were introduced
    assert compute_partition_hash(build_id(1), 7, settled) == record_hash(PARTITION, build_id(1), 7, before)
    reassign(world, 3, 2)
    moving = world.partition("orders")
    assert compute_partition_hash(build_id(1), 7, moving) == record_hash(PARTITION, build_id(1), 7, moving)
    assert decode_snapshot(encode_verified_snapshot(world.image)).topics["orders"].partitions == (moving,)


@pytest.mark.parametrize("seed", range(SEED, SEED + sized(20, 1000)))
def test_partition_invariants_hold_under_random_commands(seed: int) -> None:
    randomness = random.Random(seed)
    world = MetadataWorld(1, 2, 3, 4)
    topic = world.create("orders", build_assignment(1, 2), build_assignment(2, 3), build_assignment(4, 1))
    reassigned = led = 0
    for step in range(300):
        before = world.image.topics["orders"].partitions
        world.apply(random_command(world, topic.id, randomness, step))
        after = world.image.topics["orders"].partitions
        for old, new in zip(before, after, strict=True):
            assert_partition_invariants(new, world.image)
            assert_history_is_sound(old, new)
            reassigned += old.is_reassigning and not new.is_reassigning
            led += old.leader != new.leader
    assert reassigned > 0
    assert led > 0


def random_command(world: MetadataWorld, topic_id: bytes, randomness: random.Random, step: int) -> Command:
    number, broker = randomness.randrange(3), randomness.randint(1, 4)
    partition = world.image.topics["orders"].partitions[number]
    brokers = world.image.brokers
    some = tuple(randomness.sample([1, 2, 3, 4], randomness.randint(1, 3)))
    leader = brokers.get(partition.leader)
    grown = tuple(
        IsrMember(each, brokers[each].epoch)
        for each in partition.replicas
        if each == partition.leader or (each in brokers and not brokers[each].is_fenced and randomness.random() < 0.7)
    )
    change = IsrChange(topic_id, number, partition.leader_epoch, partition.partition_epoch, grown)
    kinds: list[Command] = [
        ReassignPartitions((Reassignment(topic_id, number, some),), randomness.random() < 0.8),
        ReassignPartitions((Reassignment(topic_id, number, None),)),
        UpdateBrokerStatus(broker, randomness.choice(list(BrokerStatus))),
        UpdateBrokerStatus(broker, ONLINE),
        RegisterBroker(broker, "h", 1, None, build_id(10_000 + step), build_id(broker)),
        ElectLeaders((PartitionKey(topic_id, number),), randomness.random() < 0.3),
        SetPartitionLeader(topic_id, number, broker, unclean=randomness.random() < 0.2),
    ]
    if leader is not None:
        kinds += [UpdateISR(leader.id, leader.epoch, (change,))] * 5
    if randomness.random() < 0.03:
        kinds.append(RemoveBroker(broker))
        kinds.append(RegisterBroker(broker, "h", 1, None, build_id(20_000 + step), build_id(30_000 + step)))
    return randomness.choice(kinds)


def assert_history_is_sound(old: Partition, new: Partition) -> None:
    if new == old:
        return
    assert new.partition_epoch == old.partition_epoch + 1, "one change must increment the epoch once"
    if new.leader != old.leader:
        assert new.leader_epoch > old.leader_epoch
    assert new.leader_epoch >= old.leader_epoch
    if new.leader != NO_LEADER and not set(old.replicas) <= set(new.replicas):
        assert new.leader_epoch > old.leader_epoch, "removing a replica must start a new leader epoch"


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
