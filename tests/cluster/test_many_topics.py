"""Admin clients create 3,000 topics by each method, and every node lists all of them, before and after a restart.

`make test` runs each method once; `make long` runs every client with every method through every node.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from chronik.testing.cluster import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.clients.client_catalog import CLIENTS
from tests.clients.client_process import ClientProcess
from tests.cluster.topic_views import leader_then_followers, metadata_of, wait_until_all_have
from tests.run_size import IS_LONG_RUN

pytestmark = pytest.mark.xdist_group("cluster")

TOPICS = 3000
REPLICAS = 3
ONE_REQUEST = 1
METHODS = (100, 10, ONE_REQUEST)
"""The number of threads that create topics, with one topic per request; or one request for all topics."""

LEADER, FOLLOWER, OTHER_FOLLOWER = range(3)
"""The node that a client bootstraps from, as a position in `leader_then_followers`."""
NODES = ("leader", "follower", "other-follower")

Case = tuple[str, int, Sequence[int]]
USUAL: list[Case] = [
    ("kafka-python", FOLLOWER, (100, ONE_REQUEST)),
    ("java-4", OTHER_FOLLOWER, (10,)),
]
ALL: list[Case] = [
    (client, node, METHODS)
    for client in ("kafka-python", "java-3.9", "java-4")
    for node in (LEADER, FOLLOWER, OTHER_FOLLOWER)
]


@pytest.mark.parametrize(
    ("client", "position", "methods"),
    [pytest.param(*case, id=f"{case[0]}-through-{NODES[case[1]]}") for case in (ALL if IS_LONG_RUN else USUAL)],
)
def test_3000_topics_exist_on_every_node_and_survive_restart(
    client: str,
    position: int,
    methods: Sequence[int],
    chronik_cluster_factory: ClusterFactory,
    record_property: Any,
) -> None:
    if (reason := CLIENTS[client].missing_reason()) is not None:
        pytest.skip(reason)
    cluster = chronik_cluster_factory(replication_factor=REPLICAS)
    node = leader_then_followers(cluster)[position]
    created: list[str] = []
    with closing(ClientProcess(CLIENTS[client], node.bootstrap)) as admin:
        for threads in methods:
            names = [f"{client}-{threads}-{number:04d}" for number in range(TOPICS)]
            start = time.monotonic()
            create(admin, names, threads)
            seconds = time.monotonic() - start
            created += names
            wait_until_all_have(cluster, *names)
            how = "in one request" if threads == ONE_REQUEST else f"by {threads} threads"
            record_property("summary", f"{client} created {TOPICS} topics {how} in {seconds:.1f} s")
        for each in cluster.live_nodes:
            admin.set_bootstrap(each.bootstrap)
            assert set(created) <= set(admin.admin("list_topics"))
    assert_all_are_whole(cluster, created)
    cluster.restart()
    cluster.wait_until_ready()
    wait_until_all_have(cluster, *created)
    assert_all_are_whole(cluster, created)
    cluster.wait_until_agreed()


def create(admin: ClientProcess, names: Sequence[str], threads: int) -> None:
    """Create the topics. Raises CommandFailed when the broker rejects one of them."""
    if threads == ONE_REQUEST:
        topic = {"partitions": 1, "replication_factor": REPLICAS}
        admin.admin("create_topics", topics=dict.fromkeys(names, topic))
    else:
        wanted = {"threads": threads, "partitions": 1, "replication_factor": REPLICAS}
        admin.admin("create_topics_by_threads", topics=list(names), **wanted)


def assert_all_are_whole(cluster: Cluster, names: Sequence[str]) -> None:
    """Assert that every node lists exactly these topics besides the system topics, with all replicas."""
    for node in cluster.live_nodes:
        topics = {topic.name: topic for topic in metadata_of(node).topics if not topic.is_internal}
        assert set(topics) == set(names)
        replicas = [[sorted(each.replica_nodes) for each in topic.partitions] for topic in topics.values()]
        assert replicas == [[[1, 2, 3]]] * len(names)
