"""Stock clients whose coordinator is killed: their members continue, rebalance, commit and resume."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronik.testing.cluster import Cluster
from tests.clients.client_catalog import CLIENTS
from tests.clients.client_process import ClientProcess, GroupMember, wait_for

from .group_helpers import (
    SETTLED_SECONDS_MAX,
    START_ANEW,
    ClientPool,
    coordinator_of,
    create_topic,
    generation_of,
    offsets_of,
    places_of,
    produce_records,
    running_member,
    unique_name,
    wait_until_fully_in_sync,
    wait_until_held_everywhere,
    wait_until_seen,
    wait_until_shared,
)

pytestmark = pytest.mark.xdist_group("cluster")

PARTITIONS = 6
RECORDS = 10
STOCK_CLIENTS = ("confluent", "kafka-python", "aiokafka", "kafkajs", "java-3.9", "java-4")
COOPERATIVE_CLIENTS = ("confluent", "java-3.9", "java-4")
STATIC_CLIENTS = tuple(name for name in STOCK_CLIENTS if name != "kafkajs")
"""Clients with static membership. KafkaJS 2.2.4 encodes `groupInstanceId` but has no consumer option for it."""


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def drivers(running: Cluster) -> Iterator[ClientPool]:
    with ClientPool(running) as drivers:
        yield drivers


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """The cluster, with all nodes running."""
    running.start()
    running.wait_until_ready()
    return running


def require(name: str) -> None:
    if (reason := CLIENTS[name].missing_reason()) is not None:
        pytest.skip(reason)


def kill_coordinator(cluster: Cluster, group: str, topic: str) -> int:
    """Kill the coordinator when all replicas are in sync."""
    wait_until_fully_in_sync(cluster, topic, PARTITIONS)
    victim = coordinator_of(cluster, group)
    victim.kill()
    return victim.node_id


def bring_back(cluster: Cluster, node_id: int) -> None:
    cluster[node_id].start()
    cluster.wait_until_ready()


@pytest.mark.parametrize("name", STOCK_CLIENTS)
def test_members_continue_with_new_coordinator(cluster: Cluster, drivers: ClientPool, name: str) -> None:
    require(name)
    topic, group = create_topic(cluster, PARTITIONS), unique_name("group")
    whole = places_of(topic, PARTITIONS)
    with (
        drivers.borrow("confluent") as writer,
        drivers.borrow(name, group) as client,
        running_member(client, group, topic) as first,
    ):
        produce_records(writer, topic, PARTITIONS, RECORDS)
        wait_until_seen([first], offsets_of(topic, PARTITIONS, 0, RECORDS))
        with running_member(client, group, topic) as second:
            both = [first, second]
            wait_until_shared(both, whole)
            expected = commit(client, both, 5, "before")
            wait_until_held_everywhere(cluster, group, expected)
            before = generation_of(cluster, group)
            victim = kill_coordinator(cluster, group, topic)
            produce_records(writer, topic, PARTITIONS, RECORDS)
            wait_until_seen(both, offsets_of(topic, PARTITIONS, RECORDS, 2 * RECORDS))
            wait_until_shared(both, whole)
            assert coordinator_of(cluster, group).node_id != victim
            if name not in START_ANEW:
                assert generation_of(cluster, group) == before, "a rebalance although the members have not changed"
            expected |= commit(client, both, 15, "after")
            bring_back(cluster, victim)
            wait_until_held_everywhere(cluster, group, expected)
        wait_until_shared([first], whole)
    if client.capabilities["commits"]:
        resume_from(drivers, name, group, topic, 15)


def resume_from(drivers: ClientPool, name: str, group: str, topic: str, committed: int) -> None:
    with drivers.borrow(name, group) as client, running_member(client, group, topic) as resumed:
        rest = offsets_of(topic, PARTITIONS, committed, 2 * RECORDS)
        wait_until_seen([resumed], rest)
        assert resumed.received_offsets() == rest


@pytest.mark.parametrize("name", STOCK_CLIENTS)
def test_new_coordinator_expires_member_crashed_during_failover(
    cluster: Cluster, drivers: ClientPool, name: str
) -> None:
    require(name)
    topic, group = create_topic(cluster, PARTITIONS), unique_name("group")
    whole = places_of(topic, PARTITIONS)
    with (
        drivers.borrow(name, group) as client,
        drivers.borrow(name, group) as other,
        running_member(client, group, topic) as first,
        running_member(other, group, topic) as second,
    ):
        wait_until_shared([first, second], whole)
        wait_until_fully_in_sync(cluster, topic, PARTITIONS)
        other.crash()
        victim = kill_coordinator(cluster, group, topic)
        wait_until_shared([first], whole)  # when the session of the other has expired, counted from the election
        bring_back(cluster, victim)


@pytest.mark.parametrize("name", STATIC_CLIENTS)
def test_static_members_keep_partitions_without_rebalance(cluster: Cluster, drivers: ClientPool, name: str) -> None:
    """The group leader restarts after a clean close, the other member after a crash during a failover.

    The new processes start before the old ones stop, because only the join must happen within a session.
    """
    require(name)
    topic, group = create_topic(cluster, PARTITIONS), unique_name("static")
    whole = places_of(topic, PARTITIONS)
    with (
        drivers.borrow("confluent") as writer,
        drivers.borrow(name) as client,
        drivers.borrow(name) as other,
        drivers.borrow(name) as client_again,
        drivers.borrow(name) as other_again,
        running_member(client, group, topic, instance="one") as first,
    ):
        assert client.capabilities["static_members"]
        wait_until_shared([first], whole)  # the only member, and thus the leader
        with running_member(other, group, topic, instance="two") as second:
            wait_until_shared([first, second], whole)
            commit(client, [first, second], 0, "settled")  # kafka-python's leader may rejoin once more
            place = first.assignment()
            first.leave()  # a static member does not leave its group
            client.close()
            before, rebalances = generation_of(cluster, group), second.rebalances()
            with running_member(client_again, group, topic, instance="one") as first_again:
                wait_until_back(first_again, place)
                produce_records(writer, topic, PARTITIONS, RECORDS)
                wait_until_seen([first_again, second], offsets_of(topic, PARTITIONS, 0, RECORDS))
                assert_only_an_id_changed(cluster, group, before)
                assert second.rebalances() == rebalances

                before, place = generation_of(cluster, group), second.assignment()
                assert place == whole - first_again.assignment()
                rebalances = first_again.rebalances()
                other.crash()
                victim = kill_coordinator(cluster, group, topic)
                with running_member(other_again, group, topic, instance="two") as second_again:
                    wait_until_back(second_again, place)
                    produce_records(writer, topic, PARTITIONS, RECORDS)
                    new = offsets_of(topic, PARTITIONS, RECORDS, 2 * RECORDS)
                    wait_until_seen([first_again, second_again], new)
                    assert coordinator_of(cluster, group).node_id != victim
                    assert_only_an_id_changed(cluster, group, before)
                    assert first_again.rebalances() == rebalances
                    assert first_again.assignment() == whole - place


def wait_until_back(member: GroupMember, place: set[tuple[str, int]]) -> None:
    wait_for(f"{member} has {sorted(place)} again", lambda: member.assignment() == place, SETTLED_SECONDS_MAX)


def assert_only_an_id_changed(cluster: Cluster, group: str, before: tuple[int, tuple[str, ...]]) -> None:
    """Check that the member ids have changed within the same generation."""
    generation, ids = generation_of(cluster, group)
    assert generation == before[0], "a rebalance although all members returned"
    assert len(ids) == len(before[1])
    assert len(set(ids) - set(before[1])) == 1


@pytest.mark.parametrize("name", COOPERATIVE_CLIENTS)
def test_cooperative_group_stabilizes_after_failover_in_rebalance(
    cluster: Cluster, drivers: ClientPool, name: str
) -> None:
    require(name)
    topic, group = create_topic(cluster, PARTITIONS), unique_name("group")
    whole = places_of(topic, PARTITIONS)
    with (
        drivers.borrow("confluent") as writer,
        drivers.borrow(name, group) as client,
        running_member(client, group, topic, "cooperative-sticky") as first,
    ):
        wait_until_shared([first], whole)
        wait_until_fully_in_sync(cluster, topic, PARTITIONS)
        victim = coordinator_of(cluster, group)
        with running_member(client, group, topic, "cooperative-sticky") as second:
            victim.kill()
            wait_until_shared([first, second], whole)
            produce_records(writer, topic, PARTITIONS, RECORDS)
            wait_until_seen([first, second], offsets_of(topic, PARTITIONS, 0, RECORDS))
            bring_back(cluster, victim.node_id)
            wait_until_shared([first, second], whole)


def commit(
    client: ClientProcess, members: list[GroupMember], offset: int, note: str
) -> dict[tuple[str, int], tuple[int, str]]:
    """Commit for every member the partitions that it owns, if its client supports commits."""
    if not client.capabilities["commits"]:
        return {}
    committed: dict[tuple[str, int], tuple[int, str]] = {}
    for member in members:
        owned = sorted(member.assignment())
        member.commit([(topic, partition, offset, note) for topic, partition in owned])
        committed |= dict.fromkeys(owned, (offset, note))
    return committed
