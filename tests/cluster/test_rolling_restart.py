"""A graceful rolling restart under load: no client's application gets an error."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from chronik.testing.plugin import ClusterFactory
from tests.chaos.history import Place
from tests.cluster import replicated
from tests.cluster.every_client import PARTITIONS, every_client
from tests.cluster.replicated import sockets_let_go  # noqa: F401 - a fixture
from tests.long import count

pytestmark = [pytest.mark.xdist_group("cluster"), *replicated.KAFKA_PYTHON_LEAVES_SOCKETS]

ROUNDS = count(1, 3)
SYSTEM_PARTITIONS = 50
NODES_ARE_BACK_SECONDS_MAX = 90.0


def test_rolling_restart_is_invisible_to_applications(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory()
    places = replicated.make_topic(cluster, "rolled", PARTITIONS)
    offsets = [Place("__consumer_offsets", index) for index in range(SYSTEM_PARTITIONS)]
    took: list[float] = []
    gaps: list[float] = []
    with every_client(cluster.bootstrap, "rolled") as (loads, followers):
        clients: list[replicated.Load | replicated.Follower] = [*loads, *followers]
        for client in clients:
            client.wait_until_it_goes_on()
        replicated.wait_until_in_sync(cluster, offsets)
        for node in list(cluster.nodes.values()) * ROUNDS:
            loads[0].forget_gaps()
            began = time.monotonic()
            node.stop()
            node.start()
            replicated.wait_until_in_sync(cluster, [*places, *offsets], NODES_ARE_BACK_SECONDS_MAX)
            took.append(time.monotonic() - began)
            for client in clients:
                client.wait_until_it_goes_on()
            gaps.append(max(loads[0].gap(partition) for partition in range(PARTITIONS)))
    problems = {client.name: client.problems[:3] for client in clients if client.problems}
    assert not problems, problems
    records = replicated.check_records(cluster.bootstrap, places, loads)
    for follower in followers:
        replicated.check_follower(cluster.bootstrap, places, follower)
    replicated.check_replicas(cluster, places)
    record_property(
        "summary",
        f"rolling restart with {', '.join(load.client for load in loads)}: {records:,} records, no errors, 0 lost; "
        f"each node's restart took {replicated.median_and_most(took)}; "
        f"no acknowledgement for {replicated.median_and_most(gaps)}",
    )
