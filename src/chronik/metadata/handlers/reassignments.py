"""Partition reassignment: pure functions of one partition and the brokers' status.

A reassignment first adds the new replicas to the old ones. When the last target replica gets in sync, the same command
removes the replicas outside the target, and a removed leader hands over. So the ISR never shrinks below its previous
size, and a running reassignment can always be cancelled.
"""

from __future__ import annotations

from msgspec.structs import replace

from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.elections import Brokers, elect
from chronik.metadata.errors import CommandRejectedError
from chronik.metadata.records import Partition
from chronik.protocol.errors import ErrorCode


def start_reassignment(partition: Partition, target: tuple[int, ...], brokers: Brokers) -> Partition:
    """Return the partition with a reassignment to `target`.

    A running reassignment is replaced: replicas that only it had added are removed, and cancelling still returns to the
    replicas before the first reassignment.

    Raises:
        CommandRejectedError: No remaining replica would be in sync.
    """
    original = partition.original_replicas
    adding = tuple(replica for replica in target if replica not in original)
    removing = tuple(replica for replica in original if replica not in target)
    changed: Partition = replace(partition, replicas=(*target, *removing), adding=adding, removing=removing)
    return _adapt_isr(partition, changed, brokers)


def cancel_reassignment(partition: Partition, brokers: Brokers) -> Partition:
    """Return the partition with its reassignment cancelled.

    Raises:
        CommandRejectedError: There is no reassignment, or no remaining replica would be in sync.
    """
    if not partition.is_reassigning:
        raise CommandRejectedError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment of the partition is under way"
        )
    changed: Partition = replace(partition, replicas=partition.original_replicas, adding=(), removing=())
    return _adapt_isr(partition, changed, brokers)


def complete_reassignment(partition: Partition, brokers: Brokers) -> Partition:
    """Return the partition with its reassignment completed, if all target replicas are in sync.

    Completion is part of the ISR change that caused it, so the partition epoch is not incremented again.
    """
    target = partition.target_replicas
    if not partition.is_reassigning or not set(target) <= set(partition.isr):
        return partition
    return _led(partition, replace(partition, replicas=target, isr=target, adding=(), removing=()), brokers)


def _adapt_isr(before: Partition, changed: Partition, brokers: Brokers) -> Partition:
    """Adapt the ISR and the leader to changed replicas."""
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
    """Elect a new leader if the current one has left the ISR.

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
