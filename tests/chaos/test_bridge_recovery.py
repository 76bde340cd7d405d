"""Five nodes, two pairs of which are disconnected: every partition acknowledges soon after the network heals."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.produce import ProduceResponse
from tests.api import request_builders
from tests.chaos.cluster import ChaosCluster
from tests.chaos.network import Barrier, directions_between, namespaces_unavailable_reason
from tests.cluster.partitions import create_topic, read_partitions
from tests.raw import RawClient

NO_NETWORK = namespaces_unavailable_reason()
pytestmark = [
    pytest.mark.skipif(NO_NETWORK is not None, reason=f"no network namespaces: {NO_NETWORK}"),
    pytest.mark.xdist_group("cluster"),
]

TOPIC = "topic"
CUT_SECONDS = 11.0
"""Longer than `replica.lag.time.max.ms`: isolated followers have left the ISR."""

RECOVERY_SECONDS_MAX = 3.0
"""Connections, heartbeats and catching up take less than one second; the rest is for a busy machine."""

DEADLINE_SECONDS = 30.0
ASK_SECONDS = 1.5


class Pulse:
    """A producer of single records to one partition, at the node that leads it, without backoff."""

    def __init__(self, cluster: ChaosCluster, partition: int) -> None:
        self.acknowledged_at = 0.0
        self._cluster = cluster
        self._partition = partition
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        clients: dict[int, RawClient] = {}
        nodes = itertools.cycle(self._cluster.nodes)
        node = next(nodes)
        while not self._over.wait(0.01):
            if not self._is_acknowledged(node, clients):
                node = next(nodes)
        for client in clients.values():
            client.close()

    def _is_acknowledged(self, node: int, clients: dict[int, RawClient]) -> bool:
        request = request_builders.produce_request(
            TOPIC, request_builders.batch(b"value"), self._partition, timeout_ms=500
        )
        try:
            if node not in clients:
                clients[node] = RawClient(self._cluster[node].bootstrap)
                clients[node].socket.settimeout(ASK_SECONDS)
            answer = clients[node].request(request, 9, ProduceResponse).responses[0].partition_responses[0]
        except (OSError, AssertionError):  # no response, or the node has closed the connection
            if node in clients:
                clients.pop(node).close()
            return False
        if answer.error_code == ErrorCode.NONE:
            self.acknowledged_at = time.monotonic()
        return answer.error_code == ErrorCode.NONE


@contextmanager
def pulses(cluster: ChaosCluster, count: int) -> Iterator[list[Pulse]]:
    made = [Pulse(cluster, partition) for partition in range(count)]
    for pulse in made:
        pulse.start()
    try:
        yield made
    finally:
        for pulse in made:
            pulse.stop()


def wait_until_acknowledged(cluster: ChaosCluster, running: list[Pulse], since: float) -> float:
    """Return the time from `since` until every partition has acknowledged a record."""

    def missing() -> str | None:
        silent = [number for number, pulse in enumerate(running) if pulse.acknowledged_at <= since]
        return f"partitions {silent}" if silent else None

    cluster.wait_until(missing, "every partition acknowledges", DEADLINE_SECONDS)
    return time.monotonic() - since


@pytest.mark.parametrize("barrier", list(Barrier))
def test_partitions_recover_soon_after_bridge_partition_heals(
    tmp_path: Path, barrier: Barrier, record_property: Callable[[str, object], None]
) -> None:
    cluster = ChaosCluster(5, tmp_path, has_network=True, started=lambda node, at: None)
    with closing(cluster), cluster.in_client_namespace():
        cluster.start()
        cluster.wait_until_ready()
        controller = cluster.leader().node_id
        bridge, one, other, last = (node for node in cluster.nodes if node != controller)
        # Two replicas are cut off from the controller and fenced; the third is left with too small an ISR.
        replicas = [[one, other, bridge], [other, one, controller], [bridge, one, other], [last, other, one]]
        create_topic(cluster[controller], TOPIC, *replicas)

        def out_of_sync() -> str | None:
            seen = read_partitions(cluster[controller], TOPIC)
            return None if all(len(each.isr) == 3 for each in seen) else f"{seen}"

        cluster.wait_until(out_of_sync, "all replicas are in sync")
        with pulses(cluster, len(replicas)) as running:
            wait_until_acknowledged(cluster, running, time.monotonic())
            with cluster.network.imposed(dict.fromkeys(directions_between([one, other], [controller, last]), barrier)):
                time.sleep(CUT_SECONDS)
            seconds = wait_until_acknowledged(cluster, running, time.monotonic())
    record_property("summary", f"bridge ({barrier.name}): acknowledgements {seconds:.2f} s after it had healed")
    assert seconds < RECOVERY_SECONDS_MAX
