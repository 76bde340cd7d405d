"""Helpers for group tests in a cluster: coordinators, each node's own group state, and members."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from chronik.client.admin import NewTopic, create_topics
from chronik.metadata.names import OFFSETS_TOPIC, compute_coordinator_partition
from chronik.testing.cluster import Cluster, ClusterNode
from tests.chaos.history import Place
from tests.chaos.partition_states import leader_of, out_of_sync_reason
from tests.clients.client_catalog import CLIENTS
from tests.clients.client_process import ClientProcess, CommandFailed, GroupMember, wait_for
from tests.clients.drivers.wire import ReceivedRecord, Record

COORDINATED_PARTITIONS = 50
SETTLED_SECONDS_MAX = 90.0
"""Time limit for a session, a rebalance and an election on a busy machine."""

Owned = set[tuple[str, int]]


def unique_name(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def create_topic(cluster: Cluster, partitions: int) -> str:
    topic = unique_name("topic")
    with cluster.live_nodes[0].cluster() as client:
        create_topics(client, [NewTopic(topic, partitions, 3)])
    wait_until_fully_in_sync(cluster, topic, partitions)
    return topic


def wait_until_fully_in_sync(cluster: Cluster, topic: str, partitions: int) -> None:
    """Wait until all replicas of the topic and of the coordinator topics are in sync, so that any node may die."""
    places = [Place(topic, index) for index in range(partitions)]
    places += [Place(OFFSETS_TOPIC, index) for index in range(COORDINATED_PARTITIONS)]
    cluster.wait_until(
        lambda: out_of_sync_reason(cluster, places), f"all replicas of {topic} in sync", SETTLED_SECONDS_MAX
    )


def coordinator_of(cluster: Cluster, group: str) -> ClusterNode:
    """Return a live coordinator, according to a live node."""
    place = Place(OFFSETS_TOPIC, compute_coordinator_partition(group, COORDINATED_PARTITIONS))

    def found() -> ClusterNode | None:
        node = cluster.nodes.get(leader_of(cluster, place))
        return node if node is not None and node.is_live else None

    node = wait_for(f"a living coordinator of {group}", found, SETTLED_SECONDS_MAX)
    assert isinstance(node, ClusterNode)
    return node


def offsets_held_by(node: ClusterNode, group: str) -> dict[tuple[str, int], tuple[int, str]]:
    """Return the offsets and metadata in this node's own image."""
    view = node.group(group)
    held: list[dict[str, Any]] = [] if view is None else view["offsets"]
    # confluent-kafka appends a zero byte to the metadata.
    return {
        (each["topic"], each["partition"]): (each["offset"], (each["metadata"] or "").rstrip("\0")) for each in held
    }


def wait_until_held_everywhere(cluster: Cluster, group: str, expected: dict[tuple[str, int], tuple[int, str]]) -> None:
    def missing() -> str | None:
        for node in cluster.live_nodes:
            held = offsets_held_by(node, group)
            if held != expected:
                return f"{node!r} holds {held} of {group}"
        return None

    cluster.wait_until(missing, f"every live node's image to contain {expected}")


def generation_of(cluster: Cluster, group: str) -> tuple[int, tuple[str, ...]]:
    """Return the generation and the member ids, as stored by the coordinator."""
    view = coordinator_of(cluster, group).group(group)
    assert view is not None
    return view["generation"], tuple(sorted(view["members"]))


# --- drivers of stock clients, as in tests/clients ---


TAKES_ONE_ADDRESS = ("kafkajs",)
"""Clients whose driver accepts only one bootstrap address."""


@contextmanager
def running_client(name: str, cluster: Cluster, group: str | None = None) -> Iterator[ClientProcess]:
    """Run a client. One that needs a single address gets that of a node which does not coordinate `group`."""
    client = ClientProcess(CLIENTS[name], bootstrap_of(name, cluster, group))
    try:
        yield client
    finally:
        client.close()


def bootstrap_of(name: str, cluster: Cluster, group: str | None) -> str:
    if name not in TAKES_ONE_ADDRESS or group is None:
        return cluster.bootstrap
    coordinator = coordinator_of(cluster, group)
    return next(node.bootstrap for node in cluster.live_nodes if node is not coordinator)


class ClientPool:
    """The clients of the tests in a file, as a context manager. Healthy clients are reused, since JVMs start slowly."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._idle: defaultdict[str, list[ClientProcess]] = defaultdict(list)

    def __enter__(self) -> ClientPool:
        return self

    def __exit__(self, *_: object) -> None:
        for idle in self._idle.values():
            for client in idle:
                client.close()

    @contextmanager
    def borrow(self, name: str, group: str | None = None) -> Iterator[ClientProcess]:
        """Borrow a client; see `started`."""
        bootstrap, idle = bootstrap_of(name, self._cluster, group), self._idle[name]
        client = idle.pop() if idle else ClientProcess(CLIENTS[name], bootstrap)
        client.set_bootstrap(bootstrap)
        is_well = False
        try:
            yield client
            is_well = client.is_running
        finally:
            idle.append(client) if is_well else client.close()


class RestartingMember(GroupMember):
    """A member whose client fails when it loses its coordinator, reports that, and restarts by itself."""

    def assignment(self) -> Owned:
        state = self._client.call("member", member=self._name)
        self.received += [ReceivedRecord.from_json(fields) for fields in state["records"]]
        return {(topic, partition) for topic, partition in state["assignment"]}


START_ANEW = ("kafkajs",)


@contextmanager
def running_member(
    client: ClientProcess, group: str, topic: str, assignor: str | None = None, instance: str | None = None
) -> Iterator[GroupMember]:
    """Run a member and remove it afterwards; it may leave or crash before."""
    member = client.join(group, [topic], assignor, instance)
    if client.name in START_ANEW:
        member = RestartingMember(client, member._name)
    try:
        yield member
    finally:
        if client.is_running:
            with suppress(CommandFailed):
                member.leave()


def produce_records(client: ClientProcess, topic: str, partitions: int, count: int) -> None:
    client.produce(topic, [Record(b"k", str(i).encode(), partition=p) for p in range(partitions) for i in range(count)])


def places_of(topic: str, partitions: int) -> Owned:
    return {(topic, partition) for partition in range(partitions)}


def offsets_of(topic: str, partitions: int, start: int, end: int) -> set[tuple[str, int, int]]:
    return {(topic, partition, offset) for partition in range(partitions) for offset in range(start, end)}


def wait_until_shared(members: Collection[GroupMember], whole: Owned) -> None:
    """Wait until every partition has one owner and every member has partitions."""

    def is_shared() -> bool:
        owned = [member.assignment() for member in members]
        return all(owned) and sum(map(len, owned)) == len(whole) and set().union(*owned) == whole

    wait_for(f"{len(members)} members share {len(whole)} partitions", is_shared, SETTLED_SECONDS_MAX)


def wait_until_seen(members: Collection[GroupMember], offsets: set[tuple[str, int, int]]) -> None:
    def have_read() -> bool:
        return offsets <= set().union(*(member.received_offsets() for member in members))

    wait_for(f"{len(members)} members read {len(offsets)} records", have_read, SETTLED_SECONDS_MAX)
