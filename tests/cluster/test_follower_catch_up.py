"""A node that missed many records catches up, while the memory of all nodes stays bounded.

A node that missed more metadata than the log retains receives a snapshot and then the rest of the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from chronik.limits import MIB
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.cluster import replication_helpers
from tests.raw import RawClient
from tests.run_size import sized

pytestmark = pytest.mark.xdist_group("cluster")

RECORDS = sized(100_000, 1_000_000)
RECORD_BYTES = 1000
PARTITIONS = 3
GROWTH_MAX = 64 * MIB
"""Buffers of requests in flight and one response to each follower, independent of the missed records."""

SAMPLE_SECONDS = 0.05

SNAPSHOT_ENTRIES = 100


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0  # the process is exiting


class Memory:
    """The maximum resident memory of each node, sampled on a thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.first: dict[int, int] = {}
        self.most: dict[int, int] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ending.wait(SAMPLE_SECONDS):
            for node in self._cluster.live_nodes:
                try:
                    size = resident_bytes(node.pid)
                except OSError:
                    continue
                self.first.setdefault(node.node_id, size)
                self.most[node.node_id] = max(size, self.most.get(node.node_id, 0))

    @contextmanager
    def sampled(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ending.set()
            self._thread.join()

    @property
    def growth(self) -> dict[int, int]:
        return {node_id: self.most[node_id] - self.first[node_id] for node_id in self.first}


def fill(cluster: Cluster, topic: str, records: int) -> None:
    """Produce records. Raises if one is not acknowledged."""
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    value = bytes(RECORD_BYTES)

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(replication_helpers.FLUSH_SECONDS_MAX) == 0
    assert not failures, failures[:3]


def test_returning_node_catches_up_with_bounded_memory(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory()
    places = replication_helpers.create_topic(cluster, "long", PARTITIONS)
    fill(cluster, "long", 1000)
    replication_helpers.wait_until_in_sync(cluster, places)
    away = cluster.nodes[2]
    away.kill()
    memory = Memory(cluster)
    with memory.sampled():
        fill(cluster, "long", RECORDS)
        back = time.monotonic()
        away.start()
        replication_helpers.wait_until_in_sync(cluster, places, seconds=replication_helpers.READ_SECONDS_MAX)
        seconds = time.monotonic() - back
    assert set(memory.growth) == set(cluster.nodes)
    assert sum(replication_helpers.end_offsets(cluster.bootstrap, places).values()) == RECORDS + 1000
    replication_helpers.check_replicas(cluster, places)
    megabytes = RECORDS * RECORD_BYTES / 1e6
    shown = ", ".join(f"{most / MIB:.0f}" for _, most in sorted(memory.most.items()))
    record_property(
        "summary",
        f"a node that missed {RECORDS:,} records ({megabytes:,.0f} MB) was in sync again after {seconds:.1f} s "
        f"({megabytes / seconds:,.0f} MB/s); maximum memory of the nodes {shown} MiB, "
        f"growth at most {max(memory.growth.values()) / MIB:.0f} MiB",
    )
    assert max(memory.growth.values()) < GROWTH_MAX, memory.growth


def create_one_by_one(node: ClusterNode, names: list[str]) -> None:
    with RawClient(node.bootstrap) as client:
        for name in names:
            request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
            assert client.request(request, 7, CreateTopicsResponse).topics[0].error_code == ErrorCode.NONE


def test_returning_node_receives_snapshot_and_remaining_log(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory(metadata_snapshot_entries=SNAPSHOT_ENTRIES, metadata_kept_bytes=0)
    leader = cluster.leader()
    away = next(node for node in cluster.live_nodes if node is not leader)
    before = away.status()["applied_index"]
    away.stop()
    create_one_by_one(leader, [f"topic-{number}" for number in range(3 * SNAPSHOT_ENTRIES)])
    cluster.wait_until(
        lambda: None if leader.status()["first_index"] > before + 1 else f"{leader.status()['first_index']} entries",
        "the log to be truncated after a snapshot",
    )
    away.start()
    cluster.wait_until_ready()
    create_one_by_one(leader, ["afterwards"])
    cluster.wait_until_agreed()
    assert away.status()["snapshot_index"] > before
    assert away.status()["topics"] == leader.status()["topics"] > 3 * SNAPSHOT_ENTRIES
    cluster.restart()
    cluster.wait_until_ready()
    cluster.wait_until_agreed()
    assert away.status()["topics"] > 3 * SNAPSHOT_ENTRIES
