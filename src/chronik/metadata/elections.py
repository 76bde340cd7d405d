"""Which replica leads a partition: pure rules over one partition and the brokers' status.

Only members of the ISR lead, in the order of the replicas, those that are online before those in maintenance. Each
new term of a leader raises the leader epoch; each change of any kind raises the partition epoch. The last member of
an ISR stays in it when it goes away: it alone has everything that was acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from chronik.metadata.commands.brokers import BrokerStatus
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Broker, Partition

Brokers = Mapping[int, Broker]


def elect(partition: Partition, isr: tuple[int, ...], brokers: Brokers) -> int:
    for wanted in (BrokerStatus.ONLINE, BrokerStatus.MAINTENANCE):
        for replica in partition.replicas:
            broker = brokers.get(replica)
            if replica in isr and broker is not None and broker.status is wanted:
                return replica
    return NO_LEADER


def elect_uncleanly(partition: Partition, brokers: Brokers) -> int:
    """Returns any replica that is online. One that is just being added comes last: it has the least."""
    leader = elect(partition, partition.original, brokers)
    return leader if leader != NO_LEADER else elect(partition, partition.replicas, brokers)


def with_leader(partition: Partition, isr: tuple[int, ...], leader: int) -> Partition:
    """Begins a new term of `leader`, even if it is the old one."""
    return replace(
        partition,
        isr=isr,
        leader=leader,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )


def with_isr(partition: Partition, isr: tuple[int, ...]) -> Partition:
    """Changes the ISR; the leader and its term stay."""
    return replace(partition, isr=isr, partition_epoch=partition.partition_epoch + 1)


def after_restart(partition: Partition, broker_id: int, brokers: Brokers) -> Partition:
    """`broker_id` has restarted and may have lost what it had not synced."""
    if broker_id not in partition.isr:
        return partition
    isr = without(partition.isr, broker_id) or partition.isr
    if partition.leader in (broker_id, NO_LEADER):
        return with_leader(partition, isr, elect(partition, isr, brokers))
    return with_isr(partition, isr)


def after_durable_restart(partition: Partition, broker_id: int, brokers: Brokers) -> Partition:
    """`broker_id` has restarted, and has everything that it ever acknowledged, so it stays in the ISR: if all of an ISR
    were killed at once and each left it on its return, the last would be waited for although others have as much."""
    if broker_id not in partition.isr:
        return partition
    if partition.leader in (broker_id, NO_LEADER):
        return with_leader(partition, partition.isr, elect(partition, partition.isr, brokers))
    return with_isr(partition, partition.isr)


def after_disk_loss(partition: Partition, broker_id: int, brokers: Brokers) -> Partition:
    """`broker_id` has lost records; an ISR of it alone is lost, and the partition stays offline."""
    if broker_id not in partition.isr:
        return partition
    isr = without(partition.isr, broker_id)
    if partition.leader == broker_id:
        return with_leader(partition, isr, elect(partition, isr, brokers))
    return with_isr(partition, isr)


def after_fencing(partition: Partition, broker_id: int, brokers: Brokers) -> Partition:
    """`broker_id`, fenced in `brokers` already, leads nothing, and stays in an ISR only as its last member."""
    if broker_id not in partition.isr:
        return partition
    isr = without(partition.isr, broker_id) or partition.isr
    if partition.leader == broker_id:
        return with_leader(partition, isr, elect(partition, isr, brokers))
    return partition if isr == partition.isr else with_isr(partition, isr)


def after_return(partition: Partition, broker_id: int, brokers: Brokers) -> Partition:
    """`broker_id` is back, and may lead a partition that waited for it."""
    if partition.leader != NO_LEADER or broker_id not in partition.isr:
        return partition
    leader = elect(partition, partition.isr, brokers)
    return partition if leader == NO_LEADER else with_leader(partition, partition.isr, leader)


def after_maintenance_began(partition: Partition, broker_id: int, brokers: Brokers) -> Partition:
    """`broker_id` hands over what another member of the ISR can lead."""
    if partition.leader != broker_id:
        return after_return(partition, broker_id, brokers)
    leader = elect(partition, partition.isr, brokers)
    return partition if leader in (broker_id, NO_LEADER) else with_leader(partition, partition.isr, leader)


def without(members: tuple[int, ...], broker_id: int) -> tuple[int, ...]:
    return tuple(member for member in members if member != broker_id)
