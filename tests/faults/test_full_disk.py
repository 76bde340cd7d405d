"""A full disk stops the node with one log line that states the cause, without a traceback."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.cluster.partitions import create_topic, wait_until_in_sync

pytestmark = pytest.mark.xdist_group("cluster")

FILE_BYTES_MAX = 200_000
PARTITIONS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2
DEADLINE_SECONDS = 60.0


def produce(bootstrap: str, over: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 5})
    while not over.is_set():
        with suppress(BufferError):
            producer.produce("topic", b"x" * 1000)
        producer.poll(0.001)


def transact(bootstrap: str, over: threading.Event) -> None:
    while not over.is_set():
        try:
            producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "transactional.id": "id"})
            producer.init_transactions(10)
            while not over.is_set():
                producer.begin_transaction()
                producer.produce("topic", b"value")
                producer.commit_transaction(10)
        except KafkaException:
            continue


def consume(bootstrap: str, over: threading.Event) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "group", "auto.commit.interval.ms": 50, "log_level": 0}
    )
    consumer.subscribe(["topic"])
    while not over.is_set():
        consumer.poll(0.1)
    consumer.close()


@contextmanager
def load(cluster: Cluster) -> Iterator[None]:
    over = threading.Event()
    kinds: list[Callable[[str, threading.Event], None]] = [produce, transact, consume]
    threads = [threading.Thread(target=kind, args=(cluster.bootstrap, over)) for kind in kinds]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def fill_disk(node: ClusterNode) -> None:
    """Limit the size of the node's files: writes beyond it come back short or fail, as on a full disk."""
    resource = pytest.importorskip("resource", reason="file size limits require Unix")
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))


@pytest.mark.parametrize("which", ["controller", "follower"])
def test_full_disk_stops_node_with_one_log_line(chronik_cluster_factory: ClusterFactory, which: str) -> None:
    cluster = chronik_cluster_factory()
    create_topic(cluster[1], "topic", *PARTITIONS)
    wait_until_in_sync(cluster, "topic")
    leader = cluster.leader()
    node = leader if which == "controller" else next(each for each in cluster.live_nodes if each is not leader)
    with load(cluster):
        fill_disk(node)
        cluster.wait_until(lambda: "running" if node.is_running else None, f"{node} stops", DEADLINE_SECONDS)
        cluster.wait_until_ready()
    for each in cluster.nodes.values():
        assert "Traceback" not in each.log, each.log[each.log.index("Traceback") - 300 :][:2000]
    critical = [line for line in node.log.splitlines() if " CRITICAL " in line]
    assert len(critical) == 1
    assert re.search(r"node is stopping: .*write \S+\.log: File too large$", critical[0])
