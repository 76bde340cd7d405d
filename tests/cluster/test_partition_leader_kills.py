"""Partition leaders are killed repeatedly under load: clients with stock settings continue each time."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from chronik.testing.plugin import ClusterFactory
from tests.cluster import replicated
from tests.cluster.replicated import sockets_let_go  # noqa: F401 - a fixture
from tests.long import LONG, SEED, count

pytestmark = [pytest.mark.xdist_group("cluster"), *replicated.KAFKA_PYTHON_LEAVES_SOCKETS]

KILLS = count(4, 50)
RATE = count(300, 600)
ACKNOWLEDGED_MIN = count(1_000, 100_000)
PARTITIONS = 3


def test_leader_kills_lose_no_records_and_keep_order(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory()
    places = replicated.make_topic(cluster, "killed", PARTITIONS)
    rng = random.Random(SEED)
    loads: list[replicated.Load] = [replicated.ConfluentLoad(cluster.bootstrap, "killed", PARTITIONS, rate=RATE)]
    followers: list[replicated.Follower] = [replicated.ConfluentFollower(cluster.bootstrap, "killed", "one")]
    if LONG:
        loads.append(replicated.KafkaPythonLoad(cluster.bootstrap, "killed", PARTITIONS, rate=100))
        followers.append(replicated.KafkaPythonFollower(cluster.bootstrap, "killed", "two"))
    clients: list[replicated.Load | replicated.Follower] = [*loads, *followers]
    gaps: list[float] = []
    with replicated.running(*followers):
        with replicated.running(*loads):
            for _ in range(KILLS):
                for load in loads:
                    load.wait_until_it_goes_on()
                    load.forget_gaps()
                place = rng.choice(places)
                victim = replicated.leader_of(cluster, place)
                victim.kill()
                for client in clients:
                    client.wait_until_it_goes_on()
                gaps.append(loads[0].gap(place.partition))
                victim.start()
                replicated.wait_until_in_sync(cluster, places)
        ends = replicated.ends_of(cluster.bootstrap, places)
        for follower in followers:
            follower.wait_until_it_has_read({place.partition: end for place, end in ends.items()})
    for client in clients:
        assert not client.problems, client.problems
    records = replicated.check_records(cluster.bootstrap, places, loads)
    assert records == sum(load.count for load in loads)
    assert records >= ACKNOWLEDGED_MIN
    for follower in followers:
        replicated.check_follower(cluster.bootstrap, places, follower)
    replicated.check_replicas(cluster, places)
    record_property(
        "summary",
        f"leaders of partitions killed: {KILLS}, {records:,} records acknowledged, 0 lost, 0 duplicated, 0 reordered; "
        f"no acknowledgement for {replicated.median_and_most(gaps)}",
    )
