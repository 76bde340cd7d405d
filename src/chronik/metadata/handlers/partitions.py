"""Handlers of partition commands: replicas, leaders, ISRs, reassignments and checkpointed offsets.

A reassignment first adds the new replicas to the old ones. When the last target replica gets in sync, the same command
removes the replicas outside the target, and a removed leader hands over. So the ISR never shrinks below its previous
size, and a running reassignment can always be cancelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from chronik.metadata import elections
from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.commands.partitions import (
    PARTITIONS_PER_COMMAND_MAX,
    AssignPartition,
    ElectLeaders,
    IsrChange,
    OffsetCheckpoint,
    Reassignment,
    ReassignPartitions,
    ReportLostRecords,
    SetPartitionLeader,
    UpdateISR,
    UpdatePartitionOffset,
)
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.elections import Brokers, elect
from chronik.metadata.handlers import CommandHandlers
from chronik.metadata.handlers.brokers import require_registered_broker
from chronik.metadata.handlers.topics import check_replicas, is_broker_alive, require_partition
from chronik.metadata.records import ApplyResult, CommandRejectedError, ItemFailure, Partition
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode


class PartitionChangeBatch:
    """The partition changes of one metadata command, which are collected and then written together.

    Writing a topic copies the tuple of its partitions, so a command on thousands of partitions writes each topic once.
    """

    def __init__(self, writer: ImageWriter, *, checkpoint: bool = False) -> None:
        self._writer = writer
        self._checkpoint = checkpoint
        self._changed: dict[bytes, dict[int, Partition]] = {}
        self._failures: list[ItemFailure] = []

    @contextmanager
    def collect_failures(self, number: int) -> Iterator[None]:
        """Return a context manager that records a rejection in its block as the failure of one item of the command."""
        try:
            yield
        except CommandRejectedError as rejected:
            self._failures.append(ItemFailure(number, rejected.code, rejected.message))

    def partition(self, topic_id: bytes, number: int) -> Partition:
        """Return a partition with the changes that earlier items of the same command made.

        Raises:
            CommandRejectedError: The partition does not exist.
        """
        _, partition = require_partition(self._writer.image, topic_id, number)
        return self._changed.get(topic_id, {}).get(number, partition)

    def put(self, topic_id: bytes, number: int, partition: Partition) -> None:
        """Add a changed partition to the batch."""
        self._changed.setdefault(topic_id, {})[number] = partition

    def write(self) -> ApplyResult:
        """Write all collected changes to the image, and return the command's result with the failures of its items."""
        image = self._writer.image
        for topic_id, partitions in self._changed.items():
            topic = image.all_topics_by_id[topic_id]
            changes = {number: new for number, new in partitions.items() if new != topic.partitions[number]}
            if changes:
                self._writer.set_partitions(topic, changes, checkpoint=self._checkpoint)
        return ApplyResult(failures=tuple(self._failures))


def start_reassignment(partition: Partition, target: tuple[int, ...], brokers: Brokers) -> Partition:
    """Return the partition with an ongoing reassignment to the replicas in `target`.

    A running reassignment is replaced: replicas that only it had added are removed, and cancelling still returns to the
    replicas before the first reassignment.

    Raises:
        CommandRejectedError: No remaining replica would be in sync.
    """
    original = partition.original_replicas
    adding = tuple(replica for replica in target if replica not in original)
    removing = tuple(replica for replica in original if replica not in target)
    changed: Partition = replace(partition, replicas=(*target, *removing), adding=adding, removing=removing)
    return _restrict_isr_to_replicas(partition, changed, brokers)


def cancel_reassignment(partition: Partition, brokers: Brokers) -> Partition:
    """Return the partition with its ongoing reassignment cancelled and its original replicas restored.

    Raises:
        CommandRejectedError: There is no reassignment, or no remaining replica would be in sync.
    """
    if not partition.is_reassigning:
        raise CommandRejectedError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment of the partition is under way"
        )
    changed: Partition = replace(partition, replicas=partition.original_replicas, adding=(), removing=())
    return _restrict_isr_to_replicas(partition, changed, brokers)


def complete_reassignment(partition: Partition, brokers: Brokers) -> Partition:
    """Return the partition with its reassignment completed if all target replicas are in the ISR, else unchanged.

    Completion is part of the ISR change that caused it, so the partition epoch is not incremented again.
    """
    target = partition.target_replicas
    if not partition.is_reassigning or not set(target) <= set(partition.isr):
        return partition
    return _led(partition, replace(partition, replicas=target, isr=target, adding=(), removing=()), brokers)


def _restrict_isr_to_replicas(before: Partition, changed: Partition, brokers: Brokers) -> Partition:
    """Restrict a partition's ISR to its changed replicas, and elect a new leader if the current one was removed."""
    isr = tuple(replica for replica in changed.replicas if replica in before.isr)
    if before.isr and not isr:
        message = "no replica that would be left is in sync: it would take an unclean election, and records be lost"
        raise CommandRejectedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    changed = replace(changed, isr=isr)
    if changed == before:
        return before
    changed = replace(changed, partition_epoch=before.partition_epoch + 1)
    return complete_reassignment(_led(before, changed, brokers), brokers)


def _led(before: Partition, after: Partition, brokers: Brokers) -> Partition:
    """Return the changed partition with a newly elected leader if its leader is no longer in the ISR.

    The leader epoch is also incremented if any replica was removed. A removed replica may not know about it yet and
    still fetch, from a log that it will delete. If it were added again in the meantime, the leader could take it for in
    sync; with the new epoch its fetches are fenced.
    """
    if after.leader == NO_LEADER:
        return after
    leader = after.leader if after.leader in after.isr else elect(after, after.isr, brokers)
    if leader == after.leader and set(before.replicas) <= set(after.replicas):
        return after
    return replace(after, leader=leader, leader_epoch=after.leader_epoch + 1)


def assign_partition(writer: ImageWriter, command: AssignPartition, index: int) -> ApplyResult:
    """Apply an AssignPartition command: replace a partition's replicas immediately, without a reassignment."""
    image = writer.image
    topic, partition = require_partition(image, command.topic_id, command.partition)
    if command.partition_epoch not in (NO_EPOCH, partition.partition_epoch):
        raise CommandRejectedError(
            ErrorCode.INVALID_UPDATE_VERSION, f"partition epoch is {partition.partition_epoch} by now"
        )
    if partition.is_reassigning:
        raise CommandRejectedError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, "the partition is on its way to other replicas already"
        )
    check_replicas(image, command.partition, command.replicas)
    isr = tuple(member for member in partition.isr if member in command.replicas)
    if partition.isr and not isr:
        message = "none of the new replicas is in sync: grow the replicas first, shrink them when the new ones are"
        raise CommandRejectedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    moved = replace(partition, replicas=command.replicas)
    has_left = not set(partition.replicas) <= set(command.replicas)
    if partition.leader == NO_LEADER or (partition.leader in isr and not has_left):
        changed = elections.with_isr(moved, isr)
    else:  # a new epoch keeps a removed replica from being taken for a current one: see `reassignments`
        leader = partition.leader if partition.leader in isr else elections.elect(moved, isr, image.brokers)
        changed = elections.with_leader(moved, isr, leader)
    writer.set_partitions(topic, {command.partition: changed})
    return ApplyResult()


def set_partition_leader(writer: ImageWriter, command: SetPartitionLeader, index: int) -> ApplyResult:
    """Apply a SetPartitionLeader command: make a replica the partition's leader."""
    image = writer.image
    topic, partition = require_partition(image, command.topic_id, command.partition)
    leader = command.leader
    if command.leader_epoch not in (NO_EPOCH, partition.leader_epoch):
        raise CommandRejectedError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch is {partition.leader_epoch} by now")
    if leader == partition.leader:
        raise CommandRejectedError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {leader} leads the partition already")
    isr = partition.isr
    if leader != NO_LEADER:
        if leader not in partition.replicas:
            raise CommandRejectedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {leader} is no replica of the partition"
            )
        if not is_broker_alive(image, leader):
            raise CommandRejectedError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {leader} is away")
        if leader not in isr:
            if not command.unclean:
                raise CommandRejectedError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"broker {leader} is not in sync")
            isr = (leader,)
    led = complete_reassignment(elections.with_leader(partition, isr, leader), image.brokers)
    writer.set_partitions(topic, {command.partition: led})
    return ApplyResult()


def reassign_partitions(writer: ImageWriter, command: ReassignPartitions, index: int) -> ApplyResult:
    """Apply a ReassignPartitions command: start or cancel the reassignment of each partition."""
    changes = PartitionChangeBatch(writer)
    _check_partition_count(len(command.changes))
    for item, change in enumerate(command.changes):
        with changes.collect_failures(item):
            partition = changes.partition(change.topic_id, change.partition)
            moved = _apply_reassignment(writer, partition, change, command.allow_replication_factor_change)
            changes.put(change.topic_id, change.partition, moved)
    return changes.write()


def _apply_reassignment(
    writer: ImageWriter, partition: Partition, change: Reassignment, allow_replication_factor_change: bool
) -> Partition:
    brokers = writer.image.brokers
    if change.replicas is None:
        return cancel_reassignment(partition, brokers)
    check_replicas(writer.image, change.partition, change.replicas)
    for replica in change.replicas:
        if replica not in brokers:  # a node that has never registered may never get in sync
            raise CommandRejectedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {replica} is not registered")
    if not allow_replication_factor_change and len(change.replicas) != len(partition.target_replicas):
        message = f"the replication factor would change from {len(partition.target_replicas)} to {len(change.replicas)}"
        raise CommandRejectedError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return start_reassignment(partition, change.replicas, brokers)


def elect_leaders(writer: ImageWriter, command: ElectLeaders, index: int) -> ApplyResult:
    """Apply an ElectLeaders command: elect each partition's preferred leader or, if unclean, any online replica."""
    changes = PartitionChangeBatch(writer)
    _check_partition_count(len(command.partitions))
    for item, (topic_id, number) in enumerate((key.topic_id, key.partition) for key in command.partitions):
        with changes.collect_failures(item):
            partition = changes.partition(topic_id, number)
            elected = _elect_unclean_leader if command.unclean else _elect_preferred_leader
            changes.put(topic_id, number, elected(partition, writer.image.brokers))
    return changes.write()


def _check_partition_count(count: int) -> None:
    if count > PARTITIONS_PER_COMMAND_MAX:
        raise CommandRejectedError(
            ErrorCode.INVALID_REQUEST, f"more than {PARTITIONS_PER_COMMAND_MAX} partitions in one command"
        )


def _elect_preferred_leader(partition: Partition, brokers: elections.Brokers) -> Partition:
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise CommandRejectedError(
            ErrorCode.ELECTION_NOT_NEEDED, f"the preferred leader {preferred} leads the partition already"
        )
    broker = brokers.get(preferred)
    if preferred not in partition.isr or broker is None or broker.status is not BrokerStatus.ONLINE:
        message = f"the preferred leader {preferred} is not in sync, or not online"
        raise CommandRejectedError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
    return elections.with_leader(partition, partition.isr, preferred)


def _elect_unclean_leader(partition: Partition, brokers: elections.Brokers) -> Partition:
    if partition.leader != NO_LEADER:
        raise CommandRejectedError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads the partition")
    leader = elections.elect(partition, partition.isr, brokers)
    if leader != NO_LEADER:
        return elections.with_leader(partition, partition.isr, leader)
    leader = elections.elect_unclean_leader(partition, brokers)
    if leader == NO_LEADER:
        raise CommandRejectedError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica of the partition is online")
    return complete_reassignment(elections.with_leader(partition, (leader,), leader), brokers)


def report_lost_records(writer: ImageWriter, command: ReportLostRecords, index: int) -> ApplyResult:
    """Apply a ReportLostRecords command: remove the broker from the ISR of each partition whose records it has lost."""
    require_registered_broker(writer, command.broker_id, command.broker_epoch)
    changes = PartitionChangeBatch(writer)
    _check_partition_count(len(command.partitions))
    for item, (topic_id, number) in enumerate((key.topic_id, key.partition) for key in command.partitions):
        with changes.collect_failures(item):
            partition = changes.partition(topic_id, number)
            left = elections.after_disk_loss(partition, command.broker_id, writer.image.brokers)
            changes.put(topic_id, number, complete_reassignment(left, writer.image.brokers))
    return changes.write()


def update_isr(writer: ImageWriter, command: UpdateISR, index: int) -> ApplyResult:
    """Apply an UpdateISR command: change ISRs like Kafka's AlterPartition, only for the current leader and epochs."""
    require_registered_broker(writer, command.broker_id, command.broker_epoch)
    changes = PartitionChangeBatch(writer)
    for item, change in enumerate(command.changes):
        with changes.collect_failures(item):
            partition = changes.partition(change.topic_id, change.partition)
            changed = _apply_isr_change(writer, partition, command.broker_id, change)
            changes.put(change.topic_id, change.partition, complete_reassignment(changed, writer.image.brokers))
    return changes.write()


def _apply_isr_change(writer: ImageWriter, partition: Partition, broker_id: int, change: IsrChange) -> Partition:
    if change.leader_epoch != partition.leader_epoch or broker_id != partition.leader:
        message = f"broker {partition.leader} leads in epoch {partition.leader_epoch}"
        raise CommandRejectedError(ErrorCode.FENCED_LEADER_EPOCH, message)
    if change.partition_epoch != partition.partition_epoch:
        raise CommandRejectedError(
            ErrorCode.INVALID_UPDATE_VERSION, f"partition epoch is {partition.partition_epoch} by now"
        )
    members = tuple(member.broker_id for member in change.isr)
    if broker_id not in members or any(member not in partition.replicas for member in members):
        raise CommandRejectedError(
            ErrorCode.INVALID_REQUEST, "the ISR needs its leader and may hold nothing but replicas"
        )
    for member in change.isr:
        _check_isr_member(writer, member.broker_id, member.broker_epoch)
    # The ISR is stored in replica order.
    return elections.with_isr(partition, tuple(replica for replica in partition.replicas if replica in members))


def _check_isr_member(writer: ImageWriter, broker_id: int, broker_epoch: int) -> None:
    """Reject a proposed ISR member that is fenced, unregistered, or restarted since it caught up with the leader.

    After a restart, the broker may have lost the end of its log.
    """
    broker = writer.image.brokers.get(broker_id)
    if broker is None or broker.is_fenced or broker_epoch not in (NO_EPOCH, broker.epoch):
        raise CommandRejectedError(ErrorCode.INELIGIBLE_REPLICA, f"broker {broker_id} is away or has restarted")


def update_partition_offset(writer: ImageWriter, command: UpdatePartitionOffset, index: int) -> ApplyResult:
    """Apply an UpdatePartitionOffset command: store high watermarks and log start offsets as checkpoints."""
    changes = PartitionChangeBatch(writer, checkpoint=True)
    for item, checkpoint in enumerate(command.checkpoints):
        with changes.collect_failures(item):
            partition = changes.partition(checkpoint.topic_id, checkpoint.partition)
            changes.put(checkpoint.topic_id, checkpoint.partition, _apply_offset_checkpoint(partition, checkpoint))
    return changes.write()


def _apply_offset_checkpoint(partition: Partition, checkpoint: OffsetCheckpoint) -> Partition:
    if checkpoint.leader_epoch != partition.leader_epoch:
        raise CommandRejectedError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch is {partition.leader_epoch} by now")
    if checkpoint.log_start_offset > checkpoint.high_watermark:
        raise CommandRejectedError(ErrorCode.INVALID_REQUEST, "the log cannot start above its high watermark")
    return replace(partition, high_watermark=checkpoint.high_watermark, log_start_offset=checkpoint.log_start_offset)


HANDLERS: CommandHandlers = {
    AssignPartition: assign_partition,
    SetPartitionLeader: set_partition_leader,
    UpdateISR: update_isr,
    UpdatePartitionOffset: update_partition_offset,
    ReassignPartitions: reassign_partitions,
    ElectLeaders: elect_leaders,
    ReportLostRecords: report_lost_records,
}
