"""All nodes are killed at the same time: a restarted majority has every acknowledged record and continues."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from chronik.testing.plugin import ClusterFactory
from tests.cluster import replication_helpers
from tests.run_size import SEED, sized

pytestmark = pytest.mark.xdist_group("cluster")

CYCLES = sized(3, 50)
PARTITIONS = 3


def test_acknowledged_records_survive_crash_of_all_nodes(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory()
    places = replication_helpers.create_topic(cluster, "dark", PARTITIONS)
    rng = random.Random(SEED)
    load = replication_helpers.ConfluentLoad(cluster.bootstrap, "dark", PARTITIONS)
    outages = []
    with replication_helpers.running_clients(load):
        for _ in range(CYCLES):
            load.wait_until_progress(records=rng.randint(5, 50))
            for node in rng.sample(list(cluster.nodes.values()), 3):
                node.kill()
            died = time.monotonic()
            acknowledged = load.count
            last = rng.choice(list(cluster.nodes.values()))
            for node in cluster.nodes.values():
                if node is not last:
                    node.start()
            load.wait_until_progress()
            outages.append(time.monotonic() - died)
            assert load.count > acknowledged
            last.start()
            if rng.random() < 0.5:
                replication_helpers.wait_until_in_sync(cluster, places)
            else:
                cluster.wait_until_ready()
    assert not load.problems, load.problems
    replication_helpers.wait_until_in_sync(cluster, places)
    records = replication_helpers.check_records(cluster.bootstrap, places, [load])
    assert records == load.count
    replication_helpers.check_replicas(cluster, places)
    record_property(
        "summary",
        f"all nodes killed: {CYCLES} times, {records:,} records acknowledged, 0 lost; "
        f"two of three continued after {replication_helpers.format_median_and_max(outages)}",
    )
