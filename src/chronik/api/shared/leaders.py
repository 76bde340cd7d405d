"""Partition leaders and broker endpoints in responses.

Metadata responses and NOT_LEADER_OR_FOLLOWER errors contain them. A client only receives endpoints of the listener
that it is connected to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from chronik.api.shared.context import Services
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Broker, HostPort, Partition
from chronik.protocol.errors import ErrorCode


def find_partition(services: Services, topic: str | bytes, index: int) -> Partition | None:
    """Return the partition by its topic's name or id, or None if it does not exist."""
    image = services.image
    topic_image = image.topics_by_id.get(topic) if isinstance(topic, bytes) else image.topics.get(topic)
    return topic_image.partitions[index] if topic_image is not None and topic_image.has_partition(index) else None


def list_unreachable_brokers(services: Services) -> Collection[int]:
    """Return the ids of unreachable brokers, and of this node while it is fenced.

    Responses omit these brokers.
    """
    gone = [broker_id for broker_id in services.image.brokers if services.is_unreachable(broker_id)]
    return [*gone, services.node_id] if services.is_fenced() else gone


def list_brokers_without_listener(brokers: Mapping[int, Broker], listener: str) -> Collection[int]:
    """Return the ids of the brokers that have no endpoint on the listener."""
    return [broker.id for broker in brokers.values() if broker.listener_address(listener) is None]


def select_advertised_leader(
    partition: Partition, unreachable: Collection[int], without_listener: Collection[int] = ()
) -> tuple[int, ErrorCode]:
    """Return the partition leader to report to a client, and an error code if the leader is unavailable.

    The leader is NO_LEADER with LEADER_NOT_AVAILABLE while it is unreachable and no successor is elected, so that
    clients retry. It is NO_LEADER with LISTENER_NOT_FOUND if the leader has no endpoint on the client's listener.
    """
    leader = partition.leader
    if leader == NO_LEADER or leader in unreachable:
        return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
    return (NO_LEADER, ErrorCode.LISTENER_NOT_FOUND) if leader in without_listener else (leader, ErrorCode.NONE)


def offline_replicas(
    partition: Partition, brokers: Mapping[int, Broker], without_listener: Collection[int]
) -> list[int]:
    """Return the brokers that host an offline replica of a partition, as seen by the client.

    They are unregistered, fenced or without an endpoint on the client's listener.
    """
    return [
        replica
        for replica in partition.replicas
        if replica not in brokers or brokers[replica].is_fenced or replica in without_listener
    ]


def iter_broker_endpoints(
    brokers: Mapping[int, Broker], ids: Iterable[int], listener: str
) -> Iterator[tuple[Broker, HostPort]]:
    """Yield brokers with their advertised endpoints on a listener, sorted by id.

    Brokers without such an endpoint are skipped.
    """
    for broker_id in sorted(ids):
        broker = brokers.get(broker_id)
        if broker is not None and (place := broker.listener_address(listener)) is not None:
            yield broker, place


def select_advertised_controller(services: Services, listener: str) -> int:
    """Return the id of the controller to report to a client of the listener.

    If the controller has no endpoint on that listener, this node is returned: every node forwards metadata changes.
    """
    controller = services.controller_id()
    broker = services.image.brokers.get(controller)
    return controller if broker is None or broker.listener_address(listener) is not None else services.node_id
