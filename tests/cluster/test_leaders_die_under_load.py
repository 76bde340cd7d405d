"""The Raft leader is killed repeatedly under metadata load: no acknowledged change is lost."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

import pytest

from chronik.client.errors import ClientError
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse
from chronik.testing.cluster import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.raw import RawClient
from tests.run_size import sized

pytestmark = pytest.mark.xdist_group("cluster")

KILLS = sized(5, 20)


class TopicMaker:
    """Creates topics through all nodes in turn and remembers the acknowledged ones."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ending = threading.Event()
        self.acknowledged: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        numbers = itertools.count()
        for node in itertools.cycle(self._cluster.nodes.values()):
            if self._ending.is_set():
                return
            name = f"topic-{next(numbers)}"
            request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
            try:
                with RawClient(node.bootstrap) as client:
                    client.socket.settimeout(5)
                    code = client.request(request, 7, CreateTopicsResponse).topics[0].error_code
            except (OSError, AssertionError, ClientError):
                continue
            if code == ErrorCode.NONE:
                self.acknowledged.append(name)

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


def test_metadata_writes_survive_repeated_leader_kills(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory()
    maker = TopicMaker(cluster)
    gaps = []
    try:
        for _ in range(KILLS):
            victim = cluster.leader()
            victim.kill()
            died = time.monotonic()
            new_leader = cluster.leader()
            before = len(maker.acknowledged)
            cluster.wait_until(
                lambda before=before: None if len(maker.acknowledged) > before + 2 else "no progress",  # type: ignore[misc]
                "writes are accepted again",
            )
            gaps.append(time.monotonic() - died)
            assert new_leader is not victim
            victim.start()
            cluster.wait_until_ready()
    finally:
        maker.end()
    cluster.wait_until_agreed()
    for node in cluster.live_nodes:
        with RawClient(node.bootstrap) as client:
            names = {topic.name for topic in client.request(MetadataRequest(topics=None), 12, MetadataResponse).topics}
        lost = [name for name in maker.acknowledged if name not in names]
        assert not lost, f"{node!r} has lost the topics {lost}"
    record_property(
        "summary",
        f"leaders killed: {KILLS}, {len(maker.acknowledged)} topics acknowledged, none lost; "
        f"writes accepted again after {sorted(gaps)[len(gaps) // 2]:.1f} s (median), {max(gaps):.1f} s (most)",
    )
