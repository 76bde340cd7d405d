"""Consumers never see a partition go back: neither end offsets, nor positions, nor records, whichever node leads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from chronik.client.errors import ClientError
from chronik.protocol.errors import ErrorCode
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.api.request_builders import list_offset
from tests.chaos.history import Place
from tests.cluster import replication_helpers
from tests.raw import RawClient
from tests.run_size import sized

pytestmark = pytest.mark.xdist_group("cluster")

KILLS = sized(3, 20)
LATEST = -1
ASK_SECONDS_MAX = 5.0

NOT_NOW = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)
"""Errors of a node that is not the leader, does not know the high watermark yet, or has just started."""


class EndsWatcher:
    """Requests the end offset from every node in a loop, on one thread per node."""

    def __init__(self, cluster: Cluster, place: Place) -> None:
        self._cluster, self._place = cluster, place
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._highest = 0
        self.answers: Counter[ErrorCode] = Counter()
        self.went_back: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(node,)) for node in cluster.nodes.values()]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ending.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _run(self, node: ClusterNode) -> None:
        while not self._ending.is_set():
            try:
                with RawClient(node.bootstrap) as client:
                    client.socket.settimeout(ASK_SECONDS_MAX)
                    while not self._ending.wait(0.002):
                        self._ask(node, client)
            except (OSError, AssertionError, ClientError):  # the node is being killed
                self._ending.wait(0.01)

    def _ask(self, node: ClusterNode, client: RawClient) -> None:
        with self._lock:
            known = self._highest  # from a response before this request
        answer = list_offset(client, self._place.topic, LATEST)
        code = ErrorCode(answer.error_code)
        with self._lock:
            self.answers[code] += 1
            if code is ErrorCode.NONE:
                if answer.offset < known:
                    self.went_back.append(f"node {node.node_id} returned {answer.offset} when {known} was known")
                self._highest = max(self._highest, answer.offset)


def test_offsets_never_decrease_when_leaders_die(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory()
    [place] = places = replication_helpers.create_topic(cluster, "seen")
    load = replication_helpers.ConfluentLoad(cluster.bootstrap, "seen", 1, rate=500)
    reader = replication_helpers.ConfluentConsumerLoad(cluster.bootstrap, "seen", "readers")
    watcher = EndsWatcher(cluster, place)
    watcher.start()
    try:
        with replication_helpers.running_clients(reader):
            with replication_helpers.running_clients(load):
                for _ in range(KILLS):
                    load.wait_until_progress()
                    reader.wait_until_progress()
                    victim = replication_helpers.leader_of(cluster, place)
                    victim.kill()
                    load.wait_until_progress()
                    reader.wait_until_progress()
                    victim.start()
                    replication_helpers.wait_until_in_sync(cluster, places)
            ends = replication_helpers.end_offsets(cluster.bootstrap, places)
            reader.wait_until_read({0: ends[place]})
    finally:
        watcher.end()
        watcher.join()
    assert not watcher.went_back, watcher.went_back[:5]
    assert watcher.answers[ErrorCode.NONE] > 100
    unexpected = watcher.answers.keys() - NOT_NOW - {ErrorCode.NONE}
    assert not unexpected, watcher.answers
    assert not load.problems, load.problems
    offsets = [offset for offset, _ in reader.seen[0]]
    repeated = [offset for before, offset in pairwise(offsets) if offset != before + 1]
    assert not repeated, f"the reader moved back or skipped, to {repeated[:5]}"
    replication_helpers.check_consumer(cluster.bootstrap, places, reader)
    replication_helpers.check_records(cluster.bootstrap, places, [load])
    record_property(
        "summary",
        f"leaders killed: {KILLS}, end offsets requested {sum(watcher.answers.values()):,} times, none decreased "
        f"({watcher.answers[ErrorCode.OFFSET_NOT_AVAILABLE]} times not available yet)",
    )


def test_new_leader_reports_correct_end_offset_immediately(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    """Nothing is written, so that later records cannot hide a wrong end offset."""
    cluster = chronik_cluster_factory()
    [place] = replication_helpers.create_topic(cluster, "unknown")
    load = replication_helpers.ConfluentLoad(cluster.bootstrap, "unknown", 1)
    with replication_helpers.running_clients(load):
        load.wait_until_progress(records=50)
    known = replication_helpers.end_offsets(cluster.bootstrap, [place])[place]
    victim = replication_helpers.leader_of(cluster, place)
    victim.kill()
    answered: list[tuple[ErrorCode, int]] = []
    deadline = time.monotonic() + replication_helpers.DEADLINE_SECONDS
    while (not answered or answered[-1][0] is not ErrorCode.NONE) and time.monotonic() < deadline:
        for node in cluster.live_nodes:
            with RawClient(node.bootstrap) as client:
                answer = list_offset(client, "unknown", LATEST)
            code = ErrorCode(answer.error_code)
            answered.append((code, answer.offset))
            if code is ErrorCode.NONE:
                break
    assert answered[-1] == (ErrorCode.NONE, known)
    assert {code for code, _ in answered} - NOT_NOW == {ErrorCode.NONE}
