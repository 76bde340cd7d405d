"""Replicas, leaders, ISRs and watermarks of partitions that exist."""

from __future__ import annotations

from msgspec.structs import replace

from chronik.metadata import elections
from chronik.metadata.commands import (
    NO_EPOCH,
    NO_LEADER,
    AssignPartition,
    IsrChange,
    OffsetCheckpoint,
    SetPartitionLeader,
    UpdateISR,
    UpdatePartitionOffset,
)
from chronik.metadata.handlers.brokers import registered
from chronik.metadata.handlers.topics import can_serve, known_partition, refuse_replicas
from chronik.metadata.records import Failure, Partition, Result
from chronik.metadata.rejection import Rejected
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode


def assign_partition(writer: ImageWriter, command: AssignPartition, index: int) -> Result:
    image = writer.image
    topic, partition = known_partition(image, command.topic_id, command.partition)
    if command.partition_epoch not in (NO_EPOCH, partition.partition_epoch):
        raise Rejected(ErrorCode.INVALID_UPDATE_VERSION, f"partition epoch is {partition.partition_epoch} by now")
    refuse_replicas(image, command.partition, command.replicas)
    isr = tuple(member for member in partition.isr if member in command.replicas)
    if partition.isr and not isr:
        message = "none of the new replicas is in sync: grow the replicas first, shrink them when the new ones are"
        raise Rejected(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    moved = replace(partition, replicas=command.replicas)
    if partition.leader in isr or partition.leader == NO_LEADER:
        changed = elections.with_isr(moved, isr)
    else:
        changed = elections.with_leader(moved, isr, elections.elect(moved, isr, image.brokers))
    writer.set_partitions(topic, {command.partition: changed})
    return Result()


def set_partition_leader(writer: ImageWriter, command: SetPartitionLeader, index: int) -> Result:
    image = writer.image
    topic, partition = known_partition(image, command.topic_id, command.partition)
    leader = command.leader
    if command.leader_epoch not in (NO_EPOCH, partition.leader_epoch):
        raise Rejected(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch is {partition.leader_epoch} by now")
    if leader == partition.leader:
        raise Rejected(ErrorCode.ELECTION_NOT_NEEDED, f"broker {leader} leads the partition already")
    isr = partition.isr
    if leader != NO_LEADER:
        if leader not in partition.replicas:
            raise Rejected(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {leader} is no replica of the partition")
        if not can_serve(image, leader):
            raise Rejected(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {leader} is away")
        if leader not in isr:
            if not command.unclean:
                raise Rejected(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"broker {leader} is not in sync")
            isr = (leader,)
    writer.set_partitions(topic, {command.partition: elections.with_leader(partition, isr, leader)})
    return Result()


def update_isr(writer: ImageWriter, command: UpdateISR, index: int) -> Result:
    """As Kafka's AlterPartition: only the leader may, and only in the epochs it saw."""
    registered(writer, command.broker_id, command.broker_epoch)
    failures: list[Failure] = []
    for item, change in enumerate(command.changes):
        try:
            _change_isr(writer, command.broker_id, change)
        except Rejected as rejected:
            failures.append(Failure(item, rejected.code, rejected.message))
    return Result(failures=tuple(failures))


def _change_isr(writer: ImageWriter, broker_id: int, change: IsrChange) -> None:
    topic, partition = known_partition(writer.image, change.topic_id, change.partition)
    if change.leader_epoch != partition.leader_epoch or broker_id != partition.leader:
        message = f"broker {partition.leader} leads in epoch {partition.leader_epoch}"
        raise Rejected(ErrorCode.FENCED_LEADER_EPOCH, message)
    if change.partition_epoch != partition.partition_epoch:
        raise Rejected(ErrorCode.INVALID_UPDATE_VERSION, f"partition epoch is {partition.partition_epoch} by now")
    members = tuple(member.broker_id for member in change.isr)
    if broker_id not in members or any(member not in partition.replicas for member in members):
        raise Rejected(ErrorCode.INVALID_REQUEST, "the ISR needs its leader and may hold nothing but replicas")
    for member in change.isr:
        _refuse_member(writer, member.broker_id, member.broker_epoch)
    # In the order of the replicas, whatever order the leader named them in.
    isr = tuple(replica for replica in partition.replicas if replica in members)
    writer.set_partitions(topic, {change.partition: elections.with_isr(partition, isr)})


def _refuse_member(writer: ImageWriter, broker_id: int, broker_epoch: int) -> None:
    """A broker that restarted since the leader saw it caught up may have lost its tail: it is not in sync."""
    broker = writer.image.brokers.get(broker_id)
    if broker is None or broker.fenced or broker_epoch not in (NO_EPOCH, broker.epoch):
        raise Rejected(ErrorCode.INELIGIBLE_REPLICA, f"broker {broker_id} is away or has restarted")


def update_partition_offset(writer: ImageWriter, command: UpdatePartitionOffset, index: int) -> Result:
    failures: list[Failure] = []
    for item, checkpoint in enumerate(command.checkpoints):
        try:
            _checkpoint(writer, checkpoint)
        except Rejected as rejected:
            failures.append(Failure(item, rejected.code, rejected.message))
    return Result(failures=tuple(failures))


def _checkpoint(writer: ImageWriter, checkpoint: OffsetCheckpoint) -> None:
    topic, partition = known_partition(writer.image, checkpoint.topic_id, checkpoint.partition)
    if checkpoint.leader_epoch != partition.leader_epoch:
        raise Rejected(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch is {partition.leader_epoch} by now")
    if checkpoint.log_start_offset > checkpoint.high_watermark:
        raise Rejected(ErrorCode.INVALID_REQUEST, "the log cannot start above its high watermark")
    changed: Partition = replace(
        partition, high_watermark=checkpoint.high_watermark, log_start_offset=checkpoint.log_start_offset
    )
    if changed != partition:
        writer.set_partitions(topic, {checkpoint.partition: changed}, checkpoint=True)
