"""Leader election: pure functions of one partition and the brokers' status.

Only ISR members lead. Candidates are tried in the order of the replicas, online brokers before brokers in maintenance.
Every new leadership term increments the leader epoch; every change increments the partition epoch. The last ISR member
stays in the ISR when it goes offline, because only it has all acknowledged records.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Broker, Partition

Brokers = Mapping[int, Broker]


def elect(partition: Partition, isr: tuple[int, ...], brokers: Brokers) -> int:
    """Return the new leader of a partition: the first available member of `isr` in replica order, or NO_LEADER."""
    for wanted in (BrokerStatus.ONLINE, BrokerStatus.MAINTENANCE):
        for replica in partition.replicas:
            broker = brokers.get(replica)
            if replica in isr and broker is not None and broker.status is wanted:
                return replica
    return NO_LEADER


def elect_unclean_leader(partition: Partition, brokers: Brokers) -> int:
    """Return an available replica as the new leader, in sync or not, or NO_LEADER if there is none.

    A replica that is still being added is the last choice: it has the fewest records.
    """
    leader = elect(partition, partition.original_replicas, brokers)
    return leader if leader != NO_LEADER else elect(partition, partition.replicas, brokers)


def with_leader(partition: Partition, isr: tuple[int, ...], leader: int) -> Partition:
    """Return a copy of the partition with the given ISR and leader, and with incremented epochs."""
    return replace(
        partition,
        isr=isr,
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )


def with_isr(partition: Partition, isr: tuple[int, ...]) -> Partition:
    """Return a copy of the partition with the given ISR and an incremented partition epoch."""
    return replace(partition, isr=isr, partition_epoch=partition.partition_epoch + 1)


def after_restart(partition: Partition, broker_id: int, brokers: Brokers) -> Partition:
    """Return the partition after a replica's broker has restarted and may have lost records.

    The broker leaves the ISR unless it is the last member.
    """
    if broker_id not in partition.isr:
        return partition
    isr = remove_member(partition.isr, broker_id) or partition.isr
    if partition.leader in (broker_id, NO_LEADER):
        return with_leader(partition, isr, elect(partition, isr, brokers))
    return with_isr(partition, isr)


def after_durable_restart(partition: Partition, broker_id: int, brokers: Brokers) -> Partition:
    """Return the partition after a replica's broker has restarted without losing records and stays in the ISR.

    If all ISR members are killed at the same time, the first one that restarts can therefore become the leader.
    """
    if broker_id not in partition.isr:
        return partition
    if partition.leader in (broker_id, NO_LEADER):
        return with_leader(partition, partition.isr, elect(partition, partition.isr, brokers))
    return with_isr(partition, partition.isr)


def after_disk_loss(partition: Partition, broker_id: int, brokers: Brokers) -> Partition:
    """Return the partition after a replica's broker has lost records: the broker leaves the ISR.

    If it was the only member, the partition goes offline.
    """
    if broker_id not in partition.isr:
        return partition
    isr = remove_member(partition.isr, broker_id)
    if partition.leader == broker_id:
        return with_leader(partition, isr, elect(partition, isr, brokers))
    return with_isr(partition, isr)


def after_fencing(partition: Partition, broker_id: int, brokers: Brokers) -> Partition:
    """Return the partition after a replica's broker was fenced, with a new ISR and, if necessary, a new leader.

    The broker loses its leadership, and leaves the ISR unless it is the last member.
    """
    if broker_id not in partition.isr:
        return partition
    isr = remove_member(partition.isr, broker_id) or partition.isr
    if partition.leader == broker_id:
        return with_leader(partition, isr, elect(partition, isr, brokers))
    return partition if isr == partition.isr else with_isr(partition, isr)


def after_return(partition: Partition, broker_id: int, brokers: Brokers) -> Partition:
    """Return the partition after a replica's broker has come back online: an offline partition elects a leader."""
    if partition.leader != NO_LEADER or broker_id not in partition.isr:
        return partition
    leader = elect(partition, partition.isr, brokers)
    return partition if leader == NO_LEADER else with_leader(partition, partition.isr, leader)


def after_maintenance_start(partition: Partition, broker_id: int, brokers: Brokers) -> Partition:
    """Return the partition after a replica's broker has entered maintenance and has lost its leadership if possible."""
    if partition.leader != broker_id:
        return after_return(partition, broker_id, brokers)
    leader = elect(partition, partition.isr, brokers)
    return partition if leader in (broker_id, NO_LEADER) else with_leader(partition, partition.isr, leader)


def remove_member(members: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    """Return the broker ids in `members` without `broker_id`."""
    return tuple(member for member in members if member != broker_id)
