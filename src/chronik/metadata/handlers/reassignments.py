"""How a partition moves to other replicas: pure rules over one partition and the brokers' status.

A reassignment begins by adding: new replicas join the old ones and catch up. It ends with the command by which the
last replica of the target gets in sync: those that are not in the target leave, and hand over if one of them leads. So
a partition never has fewer replicas in sync than before, and a reassignment under way can always be cancelled.
"""

from __future__ import annotations

from msgspec.structs import replace

from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.elections import Brokers, elect
from chronik.metadata.records import Partition
from chronik.metadata.rejection import Rejected
from chronik.protocol.errors import ErrorCode


def reassigned(partition: Partition, target: tuple[int, ...], brokers: Brokers) -> Partition:
    """Sends the partition on its way to `target`. A reassignment under way is replaced: what only that one added leaves
    at once, and cancelling still leads back to where the first one began. Raises Rejected."""
    original = partition.original
    adding = tuple(replica for replica in target if replica not in original)
    removing = tuple(replica for replica in original if replica not in target)
    changed: Partition = replace(partition, replicas=(*target, *removing), adding=adding, removing=removing)
    return _followed(partition, changed, brokers)


def cancelled(partition: Partition, brokers: Brokers) -> Partition:
    """Raises Rejected."""
    if not partition.is_reassigning:
        raise Rejected(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment of the partition is under way")
    changed: Partition = replace(partition, replicas=partition.original, adding=(), removing=())
    return _followed(partition, changed, brokers)


def completed(partition: Partition, brokers: Brokers) -> Partition:
    """Ends the reassignment if a change of the ISR has brought all of the target in sync. That is part of the same
    change, so the partition epoch, which the change has raised, does not go up again."""
    target = partition.target
    if not partition.is_reassigning or not set(target) <= set(partition.isr):
        return partition
    return _led(partition, replace(partition, replicas=target, isr=target, adding=(), removing=()), brokers)


def _followed(before: Partition, changed: Partition, brokers: Brokers) -> Partition:
    """Adapts ISR and leader to the changed replicas."""
    isr = tuple(replica for replica in changed.replicas if replica in before.isr)
    if before.isr and not isr:
        message = "no replica that would be left is in sync: it would take an unclean election, and records be lost"
        raise Rejected(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    changed = replace(changed, isr=isr)
    if changed == before:
        return before
    changed = replace(changed, partition_epoch=before.partition_epoch + 1)
    return completed(_led(before, changed, brokers), brokers)


def _led(before: Partition, after: Partition, brokers: Brokers) -> Partition:
    """Elects another leader, if the old one has left the ISR. A new term begins then, and also when any replica has
    left: one that does not know yet still fetches, from a log that it is about to delete. Should it be added again
    meanwhile, it would pass for in sync with what it is going to lose. What it says under the old epoch is ignored."""
    if after.leader == NO_LEADER:
        return after
    leader = after.leader if after.leader in after.isr else elect(after, after.isr, brokers)
    if leader == after.leader and set(before.replicas) <= set(after.replicas):
        return after
    return replace(after, leader=leader, leader_epoch=after.leader_epoch + 1)
