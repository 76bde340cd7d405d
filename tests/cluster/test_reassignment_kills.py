"""Partitions are reassigned under load while nodes are killed: no record is lost, duplicated or reordered."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.testing.plugin import ClusterFactory
from tests.chaos.history import Place
from tests.cluster.partitions import create_topic, read_partitions, reassign_all, wait_until_reassigned
from tests.cluster.replication_helpers import (
    ConfluentLoad,
    check_records,
    check_replicas,
    running_clients,
    wait_until_in_sync,
)
from tests.run_size import SEED, sized

pytestmark = pytest.mark.xdist_group("cluster")

ROUNDS = sized(4, 50)
PARTITIONS = 4
TOPIC = "moving"


def test_no_record_is_lost_when_nodes_die_during_reassignment(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory(min_insync_replicas=1)
    create_topic(cluster[1], TOPIC, [1, 2], [2, 3], [3, 1], [1, 3])
    places = [Place(TOPIC, index) for index in range(PARTITIONS)]
    load = ConfluentLoad(cluster.bootstrap, TOPIC, PARTITIONS)
    randomness = random.Random(SEED)
    moved = 0
    with running_clients(load):
        load.wait_until_progress()
        for _ in range(ROUNDS):
            targets = [randomness.sample([1, 2, 3], randomness.randint(2, 3)) for _ in range(PARTITIONS)]
            before = [each.replicas for each in read_partitions(cluster[1], TOPIC)]
            asked = reassign_all(cluster[randomness.randint(1, 3)], TOPIC, dict(enumerate(targets)))
            assert asked == [ErrorCode.NONE] * PARTITIONS
            victim = cluster[randomness.randint(1, 3)]
            time.sleep(randomness.uniform(0, 0.2))  # at a random moment of the reassignments
            victim.kill()
            cluster.leader()
            victim.start()
            cluster.wait_until_agreed()  # a restarted node may not know the reassignments yet
            wait_until_reassigned(cluster)
            load.wait_until_progress()
            after = [each.replicas for each in read_partitions(cluster[1], TOPIC)]
            assert after == targets
            moved += sum(old != new for old, new in zip(before, after, strict=True))
    assert not load.problems
    cluster.wait_until_ready()
    wait_until_in_sync(cluster, places)
    records = check_records(cluster.bootstrap, places, [load])
    check_replicas(cluster, places)
    cluster.wait_until_agreed()
    assert moved >= ROUNDS
    record_property(
        "summary", f"{moved} reassignments with {ROUNDS} kills: {records:,} records, none lost or duplicated"
    )
