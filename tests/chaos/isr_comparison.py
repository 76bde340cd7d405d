"""The ISR of one partition under load, compared with Apache Kafka's: `python -m tests.chaos.isr_comparison`.

Each system runs three nodes, each in its own network namespace. Two faults are applied to one follower: delayed packets
while a producer with librdkafka's defaults sends at full speed, and SIGSTOP while an idempotent producer sends. Needs
root (network namespaces) and the jars of `tools/clients/setup apache-kafka`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.apache_kafka import DEFAULT_JVM_OPTIONS, ApacheKafka, kafka_unavailable_reason
from chronik.bench.errors import BenchmarkError
from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.connection import BrokerConnection
from chronik.client.errors import ClientError
from chronik.client.offsets import list_latest_offsets
from chronik.client.records import TopicPartition
from chronik.config import Address
from chronik.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.chaos.cluster import ChaosCluster
from tests.chaos.network import CLIENTS, LossyLink, Network, directions_between, namespaces_unavailable_reason
from tests.cluster.fast_producers import Delivered, produce_at_full_speed

NODES: Final = (1, 2, 3)
TOPIC: Final = "isr"
CHRONIK: Final = "Chronik"
LAG_MS: Final = 10_000
SESSION_MS: Final = 9000
"""Kafka's default, so that both systems fence a stopped broker after the same time."""

VALUE_BYTES: Final = 10_000
POLL_SECONDS: Final = 0.1
STANDING_SECONDS_MAX: Final = 90.0
SETTINGS: Final[dict[str, object]] = {"replica.lag.time.max.ms": LAG_MS, "min.insync.replicas": 2}


class RunningSystem(NamedTuple):
    """One of the systems, as this benchmark uses it."""

    name: str
    bootstrap: str
    network: Network
    pid: Callable[[int], int]

    def leader(self) -> int:
        leader, _ = self.leader_and_isr()
        return leader

    def leader_and_isr(self) -> tuple[int, tuple[int, ...]]:
        """Return the leader and the ISR, according to the first node that answers."""
        for address in self.bootstrap.split(","):
            host, port = address.split(":")
            try:
                connection = BrokerConnection(Address(host, int(port)), client_id="isr-comparison", timeout_s=2.0)
            except ClientError:
                continue
            try:
                wanted = [MetadataRequestTopic(name=TOPIC)]
                answer = connection.request(MetadataRequest(topics=wanted), MetadataResponse)
            except ClientError:
                continue
            finally:
                connection.close()
            partitions = answer.topics[0].partitions
            if partitions:
                return partitions[0].leader_id, tuple(sorted(partitions[0].isr_nodes))
        return -1, ()


class KafkaInNetwork(ApacheKafka):
    """Apache Kafka with each node in its own network namespace."""

    def __init__(self, folder: Path, network: Network) -> None:
        super().__init__(folder, len(NODES), DEFAULT_JVM_OPTIONS)
        self._network = network

    def host(self, index: int) -> str:
        return self._network.address(index + 1)

    def extra_settings(self, index: int) -> dict[str, object]:
        return {**SETTINGS, "broker.session.timeout.ms": SESSION_MS}

    def _start_node(self, index: int) -> subprocess.Popen[bytes]:
        with self._network.entered(index + 1):
            return super()._start_node(index)


class IsrWatch:
    """Samples the ISR from its own thread, and keeps every change with its time."""

    def __init__(self, system: RunningSystem) -> None:
        self._system = system
        self._began = time.monotonic()
        self._ending = threading.Event()
        self.changes: list[tuple[float, tuple[int, ...]]] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> IsrWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(POLL_SECONDS):
            _, isr = self._system.leader_and_isr()
            if isr and (not self.changes or self.changes[-1][1] != isr):
                self.changes.append((time.monotonic() - self._began, isr))

    def describe_changes(self) -> str:
        """Return all ISR changes as text."""
        return ", ".join(f"{list(isr)} at {at:.1f} s" for at, isr in self.changes)


@contextmanager
def chronik(folder: Path) -> Iterator[RunningSystem]:
    cluster = ChaosCluster(
        len(NODES),
        folder / "chronik",
        has_network=True,
        started=lambda *_: None,
        broker_session_ms=SESSION_MS,
        broker=dict(SETTINGS),
    )
    with cluster.in_client_namespace(), cluster:
        yield RunningSystem(CHRONIK, cluster.bootstrap, cluster.network, lambda node: cluster.nodes[node].pid)


@contextmanager
def kafka(folder: Path) -> Iterator[RunningSystem]:
    (folder / "kafka").mkdir()
    network = Network(NODES)
    try:
        with network.entered(CLIENTS), KafkaInNetwork(folder / "kafka", network) as nodes:
            yield RunningSystem("Apache Kafka", nodes.bootstrap, network, lambda node: nodes.pids[node - 1])
    finally:
        network.close()


def measure(system: RunningSystem, seconds: float, delay_s: float) -> bool:
    """Print what happened, and return whether the ISR and the log are as they should be."""
    with ClusterClient(system.bootstrap, client_id="isr-comparison") as client:
        create_topics(client, [NewTopic(TOPIC, 1, len(NODES), {"min.insync.replicas": "2"})])
        wait_for_isr(system, len(NODES))
        leader = system.leader()
        follower = next(node for node in NODES if node != leader)
        delayed = dict.fromkeys(directions_between([follower], [leader]), LossyLink(delay_s=delay_s))
        with IsrWatch(system) as watch, system.network.imposed(delayed):
            delivered = produce_at_full_speed(system.bootstrap, TOPIC, VALUE_BYTES, seconds)
        end = log_end(client)
        report(system, f"{delay_s * 1000:g} ms each way, default producer", delivered, end, watch)
        is_good = len(watch.changes) == 1 and delivered.records == end and not delivered.failures
        wait_for_isr(system, len(NODES))
        follower = next(node for node in NODES if node != system.leader())
        with IsrWatch(system) as watch:
            with stopped(system.pid(follower), LAG_MS / 1000 + 5.0):
                again = produce_at_full_speed(
                    system.bootstrap, TOPIC, VALUE_BYTES, LAG_MS / 1000 + 8.0, enable_idempotence=True
                )
            wait_for_isr(system, len(NODES))
            time.sleep(2 * POLL_SECONDS)  # until the last change is sampled, too
        added = log_end(client) - end
        report(system, "follower stopped for 15 s, idempotent producer", again, added, watch)
    sizes = [len(isr) for _, isr in watch.changes]
    return is_good and sizes == [3, 2, 3] and again.records == added and not again.failures


def report(system: RunningSystem, what: str, delivered: Delivered, end: int, watch: IsrWatch) -> None:
    rate = delivered.megabytes_per_second(VALUE_BYTES)
    print(
        f"{system.name}: {what}: {delivered.records} delivered in {delivered.seconds:.1f} s ({rate:.1f} MB/s),"
        f" {end} in the log, {len(delivered.failures)} failures; ISR {watch.describe_changes()}",
        flush=True,
    )


@contextmanager
def stopped(pid: int, seconds: float) -> Iterator[None]:
    """Stop the process now, and continue it after `seconds` or at the end, whichever is later."""
    os.kill(pid, signal.SIGSTOP)
    timer = threading.Timer(seconds, os.kill, (pid, signal.SIGCONT))
    timer.start()
    try:
        yield
    finally:
        timer.join()


def wait_for_isr(system: RunningSystem, size: int) -> None:
    deadline = time.monotonic() + STANDING_SECONDS_MAX
    while len(system.leader_and_isr()[1]) != size:
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{system.name}: the ISR is {system.leader_and_isr()}, not of {size} members")
        time.sleep(POLL_SECONDS)


def log_end(client: ClusterClient) -> int:
    partition = TopicPartition(TOPIC, 0)
    return list_latest_offsets(client, [partition])[partition]


def unavailable_reason() -> str | None:
    """Return why the comparison cannot run here, or None."""
    return namespaces_unavailable_reason() or kafka_unavailable_reason()


def compare(seconds: float, delay_s: float) -> dict[str, bool]:
    """Measure both systems, and return for each whether its ISR and its log were as they should be."""
    systems: list[Callable[[Path], AbstractContextManager[RunningSystem]]] = [chronik, kafka]
    results = {}
    for system in systems:
        with (
            tempfile.TemporaryDirectory(prefix="isr-", ignore_cleanup_errors=True) as folder,
            system(Path(folder)) as running,
        ):
            results[running.name] = measure(running, seconds, delay_s)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to send with a delayed follower")
    parser.add_argument("--delay-ms", type=float, default=20.0, help="added to every packet of the delayed follower")
    arguments = parser.parse_args()
    if missing := unavailable_reason():
        print(f"cannot compare here: {missing}", file=sys.stderr)
        return 1
    return 0 if compare(arguments.seconds, arguments.delay_ms / 1000)[CHRONIK] else 1


if __name__ == "__main__":
    sys.exit(main())
