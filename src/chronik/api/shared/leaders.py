"""Who leads a partition, and where brokers are found, as clients are told: with metadata, or with the error of a node
that does not lead it. A client is told addresses of the listener that it came by, and no others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from chronik.api.shared.context import Services
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Broker, Partition, Place
from chronik.protocol.errors import ErrorCode


def partition_of(services: Services, topic: str | bytes, index: int) -> Partition | None:
    """Finds a partition by its topic's name or id."""
    image = services.image
    found = image.topics_by_id.get(topic) if isinstance(topic, bytes) else image.topics.get(topic)
    return found.partitions[index] if found is not None and found.has_partition(index) else None


def gone_brokers(services: Services) -> Collection[int]:
    """Returns the brokers to which clients are not sent: this node too, while it serves nobody."""
    gone = [broker_id for broker_id in services.image.brokers if services.is_gone(broker_id)]
    return [*gone, services.node_id] if services.is_fenced() else gone


def without_listener(brokers: Mapping[int, Broker], listener: str) -> Collection[int]:
    """Returns the brokers that clients of that listener cannot reach."""
    return [broker.id for broker in brokers.values() if broker.place(listener) is None]


def named_leader(partition: Partition, gone: Collection[int], apart: Collection[int] = ()) -> tuple[int, ErrorCode]:
    """Returns whom clients are told to be the leader: nobody while it is gone and no other is elected, so that they ask
    again; and nobody to clients of a listener that it does not have: `apart` are the brokers without."""
    leader = partition.leader
    if leader == NO_LEADER or leader in gone:
        return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
    return (NO_LEADER, ErrorCode.LISTENER_NOT_FOUND) if leader in apart else (leader, ErrorCode.NONE)


def offline_replicas(partition: Partition, brokers: Mapping[int, Broker], apart: Collection[int]) -> list[int]:
    return [
        replica
        for replica in partition.replicas
        if replica not in brokers or brokers[replica].fenced or replica in apart
    ]


def places(brokers: Mapping[int, Broker], ids: Iterable[int], listener: str) -> Iterator[tuple[Broker, Place]]:
    """Yields brokers in order. Those that have no such listener are left out."""
    for broker_id in sorted(ids):
        broker = brokers.get(broker_id)
        if broker is not None and (place := broker.place(listener)) is not None:
            yield broker, place


def controller_for(services: Services, listener: str) -> int:
    """Returns the node that clients of a listener ask for changes: any node passes them on, and this is in reach."""
    controller = services.controller_id()
    broker = services.image.brokers.get(controller)
    return controller if broker is None or broker.place(listener) is not None else services.node_id
