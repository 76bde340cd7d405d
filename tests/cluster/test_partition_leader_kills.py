"""Partition leaders are killed repeatedly under load: clients with stock settings continue each time."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from chronik.testing.plugin import ClusterFactory
from tests.cluster import replication_helpers
from tests.cluster.replication_helpers import collect_unclosed_sockets  # noqa: F401 - a fixture
from tests.run_size import IS_LONG_RUN, SEED, sized

pytestmark = [pytest.mark.xdist_group("cluster"), *replication_helpers.KAFKA_PYTHON_LEAVES_SOCKETS]

KILLS = sized(4, 50)
RATE = sized(300, 600)
ACKNOWLEDGED_MIN = sized(1_000, 100_000)
PARTITIONS = 3


def test_leader_kills_lose_no_records_and_keep_order(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory()
    places = replication_helpers.create_topic(cluster, "killed", PARTITIONS)
    rng = random.Random(SEED)
    loads: list[replication_helpers.ProducerLoad] = [
        replication_helpers.ConfluentLoad(cluster.bootstrap, "killed", PARTITIONS, rate=RATE)
    ]
    followers: list[replication_helpers.ConsumerLoad] = [
        replication_helpers.ConfluentConsumerLoad(cluster.bootstrap, "killed", "one")
    ]
    if IS_LONG_RUN:
        loads.append(replication_helpers.KafkaPythonLoad(cluster.bootstrap, "killed", PARTITIONS, rate=100))
        followers.append(replication_helpers.KafkaPythonConsumerLoad(cluster.bootstrap, "killed", "two"))
    clients: list[replication_helpers.ProducerLoad | replication_helpers.ConsumerLoad] = [*loads, *followers]
    gaps: list[float] = []
    with replication_helpers.running_clients(*followers):
        with replication_helpers.running_clients(*loads):
            for _ in range(KILLS):
                for load in loads:
                    load.wait_until_progress()
                    load.reset_gaps()
                place = rng.choice(places)
                victim = replication_helpers.leader_of(cluster, place)
                victim.kill()
                for client in clients:
                    client.wait_until_progress()
                gaps.append(loads[0].longest_gap(place.partition))
                victim.start()
                replication_helpers.wait_until_in_sync(cluster, places)
        ends = replication_helpers.end_offsets(cluster.bootstrap, places)
        for follower in followers:
            follower.wait_until_read({place.partition: end for place, end in ends.items()})
    for client in clients:
        assert not client.problems, client.problems
    records = replication_helpers.check_records(cluster.bootstrap, places, loads)
    assert records == sum(load.count for load in loads)
    assert records >= ACKNOWLEDGED_MIN
    for follower in followers:
        replication_helpers.check_consumer(cluster.bootstrap, places, follower)
    replication_helpers.check_replicas(cluster, places)
    record_property(
        "summary",
        f"leaders of partitions killed: {KILLS}, {records:,} records acknowledged, 0 lost, 0 duplicated, 0 reordered; "
        f"no acknowledgement for {replication_helpers.format_median_and_max(gaps)}",
    )
