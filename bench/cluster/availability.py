"""The time until three nodes form a cluster, until survivors elect a leader, and until a partition is available again.

The last is the unavailability of a partition after kill -9 of its leader, as seen by clients with default settings. The
topic has a partition per node, but only one receives records. A consumer's fetches of the others wait at the survivors
and block its other requests there, which is the harder case.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from bench.cluster.figures import ClusterBenchmarkPlan, Figure
from bench.cluster.nodes import (
    NODES,
    connect,
    create_cluster,
    create_partitions,
    find_partition_led_by,
    replicated_topic,
    running_cluster,
    start_nodes,
    wait_until_in_sync,
)
from chronik.bench.errors import BenchmarkError
from chronik.bench.gaps import AvailabilityProbe, ServiceAvailability
from chronik.bench.librdkafka_config import generate_name
from chronik.client.connection import BrokerConnection
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from chronik.testing.cluster import Cluster, ClusterNode

UP_SECONDS_MAX: Final = 5.0
LEADERLESS_SECONDS_MAX: Final = 2.0
RETRY_SECONDS_MAX: Final = 60.0

GAP_SECONDS_MAX: Final = 3.0
OTHER_PARTITIONS: Final = (0, 1000)
BEFORE_SECONDS: Final = 1.0
AFTER_SECONDS: Final = 3.0
"""Observed after the recovery, to detect another interruption."""

GIVEN_UP_SECONDS: Final = 60.0


def measure_up(plan: ClusterBenchmarkPlan) -> list[Figure]:
    """Measure the time from starting three empty nodes until each lists all three."""
    rounds = [_up_once(plan) for _ in range(1 + plan.rounds)]
    del rounds[0]  # compiled the modules, once
    return [Figure("cluster up until every node lists all nodes, s", rounds, below=UP_SECONDS_MAX)]


def _up_once(plan: ClusterBenchmarkPlan) -> float:
    with create_cluster(plan) as cluster:
        started = time.perf_counter()
        start_nodes(cluster)
        cluster.wait_until_listed(cluster.nodes)
        return time.perf_counter() - started


def measure_leaderless(plan: ClusterBenchmarkPlan) -> list[Figure]:
    """Measure the time from kill -9 of the leader until a survivor accepts a metadata change."""
    rounds = []
    with running_cluster(plan) as cluster:
        for _ in range(plan.rounds):
            leader = cluster.leader()
            survivor = next(node for node in cluster.live_nodes if node is not leader)
            connection = connect(survivor)
            started = time.perf_counter()
            leader.kill()
            create_topic_until_success(connection)
            rounds.append(time.perf_counter() - started)
            connection.close()
            leader.start()
            cluster.wait_until_ready()
    return [Figure("without a leader after kill -9, s", rounds, below=LEADERLESS_SECONDS_MAX)]


def create_topic_until_success(connection: BrokerConnection) -> None:
    """Retry creating a topic until it succeeds. If it exists already, an earlier attempt has succeeded after all."""
    topic = CreatableTopic(name=generate_name("leaderless"), num_partitions=1, replication_factor=-1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(RETRY_SECONDS_MAX * 1000))
    deadline = time.monotonic() + RETRY_SECONDS_MAX
    while time.monotonic() < deadline:
        (created,) = connection.request(request, CreateTopicsResponse).topics
        if created.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
    raise BenchmarkError(f"no metadata was written for {RETRY_SECONDS_MAX:g} s after the leader was killed")


def measure_service_gap(plan: ClusterBenchmarkPlan) -> list[Figure]:
    """Measure rounds in which the killed node is the controller, and rounds in which it is not."""
    figures: list[Figure] = []
    for count in OTHER_PARTITIONS:
        with running_cluster(plan) as nodes:
            create_partitions(nodes, count)
            figures += _figures(nodes, plan, f", {count:,} partitions" if count else "")
    return figures


def _figures(nodes: Cluster, plan: ClusterBenchmarkPlan, where: str) -> Iterator[Figure]:
    rounds = {"controller": _rounds(nodes, plan, True), "another node": _rounds(nodes, plan, False)}
    for killed, availability in rounds.items():
        prefix = f"kill -9 of a leader, {killed}{where}"
        without_ack = [service.longest_without_ack_seconds for service in availability]
        without_record = [service.longest_without_record_seconds for service in availability]
        yield Figure(f"{prefix}: without an ack, s", without_ack, below=GAP_SECONDS_MAX)
        yield Figure(f"{prefix}: without a record consumed, s", without_record, below=GAP_SECONDS_MAX)


def _rounds(nodes: Cluster, plan: ClusterBenchmarkPlan, is_controller: bool) -> list[ServiceAvailability]:
    return [_kill_once(nodes, is_controller) for _ in range(plan.rounds)]


def _kill_once(nodes: Cluster, is_controller: bool) -> ServiceAvailability:
    controller = nodes.leader()
    killed = controller if is_controller else next(node for node in nodes.live_nodes if node is not controller)
    with replicated_topic(nodes, "gap", NODES) as topic:
        availability = _observe_kill(nodes, topic, killed)
        killed.start()
        nodes.wait_until_ready()
        wait_until_in_sync(nodes)
    return availability


def _observe_kill(nodes: Cluster, topic: str, killed: ClusterNode) -> ServiceAvailability:
    with AvailabilityProbe(nodes.bootstrap, topic, find_partition_led_by(nodes, topic, killed)) as probe:
        probe.run_for_seconds(BEFORE_SECONDS)
        killed.kill()
        probe.wait_until_available(GIVEN_UP_SECONDS)
        probe.run_for_seconds(AFTER_SECONDS)
    return probe.summarize()
