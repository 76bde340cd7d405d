"""A graceful rolling restart under load: no client's application gets an error."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from chronik.testing.plugin import ClusterFactory
from tests.chaos.history import Place
from tests.cluster import replication_helpers
from tests.cluster.client_load import PARTITIONS, running_client_loads
from tests.cluster.replication_helpers import collect_unclosed_sockets  # noqa: F401 - a fixture
from tests.run_size import sized

pytestmark = [pytest.mark.xdist_group("cluster"), *replication_helpers.KAFKA_PYTHON_LEAVES_SOCKETS]

ROUNDS = sized(1, 3)
SYSTEM_PARTITIONS = 50
NODES_ARE_BACK_SECONDS_MAX = 90.0


def test_rolling_restart_is_invisible_to_applications(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory()
    places = replication_helpers.create_topic(cluster, "rolled", PARTITIONS)
    offsets = [Place("__consumer_offsets", index) for index in range(SYSTEM_PARTITIONS)]
    took: list[float] = []
    gaps: list[float] = []
    with running_client_loads(cluster.bootstrap, "rolled") as (loads, followers):
        clients: list[replication_helpers.ProducerLoad | replication_helpers.ConsumerLoad] = [*loads, *followers]
        for client in clients:
            client.wait_until_progress()
        replication_helpers.wait_until_in_sync(cluster, offsets)
        for node in list(cluster.nodes.values()) * ROUNDS:
            loads[0].reset_gaps()
            began = time.monotonic()
            node.stop()
            node.start()
            replication_helpers.wait_until_in_sync(cluster, [*places, *offsets], NODES_ARE_BACK_SECONDS_MAX)
            took.append(time.monotonic() - began)
            for client in clients:
                client.wait_until_progress()
            gaps.append(max(loads[0].longest_gap(partition) for partition in range(PARTITIONS)))
    problems = {client.name: client.problems[:3] for client in clients if client.problems}
    assert not problems, problems
    records = replication_helpers.check_records(cluster.bootstrap, places, loads)
    for follower in followers:
        replication_helpers.check_consumer(cluster.bootstrap, places, follower)
    replication_helpers.check_replicas(cluster, places)
    record_property(
        "summary",
        f"rolling restart with {', '.join(load.client for load in loads)}: {records:,} records, no errors, 0 lost; "
        f"each node's restart took {replication_helpers.format_median_and_max(took)}; "
        f"no acknowledgement for {replication_helpers.format_median_and_max(gaps)}",
    )
