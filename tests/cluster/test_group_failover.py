"""Static members restart, and many members join, while their coordinator dies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer

from chronik.testing.cluster import Cluster
from chronik.testing.plugin import ClusterFactory

from .group_helpers import (
    SETTLED_SECONDS_MAX,
    coordinator_of,
    create_topic,
    generation_of,
    unique_name,
    wait_until_fully_in_sync,
)

pytestmark = pytest.mark.xdist_group("cluster")

STAGGERED_MEMBERS = 10
STAGGERED_PARTITIONS = 50
STAGGER_SECONDS = 0.3


def consumer(cluster: Cluster, group: str, topic: str, instance: str | None = None) -> Any:
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 30_000,
        "heartbeat.interval.ms": 500,
        "log_level": 0,
    }
    if instance is not None:
        settings["group.instance.id"] = instance
    member = Consumer(settings)
    member.subscribe([topic])
    return member


class Members:
    """Consumers that are polled in turn while a test waits."""

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}

    def owned(self, name: str) -> set[int]:
        return {each.partition for each in self.by_name[name].assignment()}

    def poll(self) -> None:
        for member in self.by_name.values():
            member.poll(0.005)

    def poll_until(self, what: str, state: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        while not state():
            assert time.monotonic() < deadline, f"{what}: {[self.owned(name) for name in self.by_name]}"
            self.poll()

    def share(self, partitions: int) -> bool:
        """Return whether every partition has one owner and every member has partitions."""
        owned = [self.owned(name) for name in self.by_name]
        return all(owned) and sorted(each for own in owned for each in own) == list(range(partitions))


@contextmanager
def members() -> Iterator[Members]:
    all_members = Members()
    try:
        yield all_members
    finally:
        for member in all_members.by_name.values():
            member.close()


def test_static_members_restart_without_rebalance_during_failover(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory()
    topic, group = create_topic(cluster, 6), unique_name("static")
    names = ("one", "two", "three")
    with members() as all_members:
        for name in names:
            all_members.by_name[name] = consumer(cluster, group, topic, name)
        all_members.poll_until("three share", lambda: all_members.share(6))
        generation, ids = generation_of(cluster, group)
        before = {name: all_members.owned(name) for name in names}

        all_members.by_name.pop("two").close()  # a static member does not leave its group
        victim = coordinator_of(cluster, group)
        victim.kill()
        all_members.by_name["two"] = consumer(cluster, group, topic, "two")
        all_members.poll_until("all are back", lambda: {name: all_members.owned(name) for name in names} == before)
        assert coordinator_of(cluster, group) is not victim
        after, new_ids = generation_of(cluster, group)
        assert after == generation, "a rebalance although all members returned"
        assert len(set(ids) & set(new_ids)) == 2
        assert len(new_ids) == 3

        victim.start()
        cluster.wait_until_ready()
        all_members.by_name.pop("three").close()
        all_members.by_name["three"] = consumer(cluster, group, topic, "three")
        all_members.poll_until("all are back", lambda: {name: all_members.owned(name) for name in names} == before)
        assert generation_of(cluster, group)[0] == generation
        cluster.wait_until_agreed()


def test_group_stabilizes_when_members_join_during_failover(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory()
    topic, group = create_topic(cluster, STAGGERED_PARTITIONS), unique_name("staggered")
    with members() as all_members:
        for number in range(STAGGERED_MEMBERS):
            all_members.by_name[f"member-{number}"] = consumer(cluster, group, topic)
            arrived_at = time.monotonic()
            if number == STAGGERED_MEMBERS // 2:
                coordinator_of(cluster, group).kill()
            while time.monotonic() < arrived_at + STAGGER_SECONDS:
                all_members.poll()
        all_members.poll_until("ten share fifty", lambda: all_members.share(STAGGERED_PARTITIONS))
        record_property("seconds from the last arrival to the last assignment", time.monotonic() - arrived_at)
        cluster.start()
        cluster.wait_until_ready()
        wait_until_fully_in_sync(cluster, topic, STAGGERED_PARTITIONS)
        assert all_members.share(STAGGERED_PARTITIONS)
        assert len(generation_of(cluster, group)[1]) == STAGGERED_MEMBERS
