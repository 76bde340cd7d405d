"""The time until three nodes form a cluster, and until the survivors elect a new leader."""

from __future__ import annotations

import time
from typing import Final

from bench.cluster.figures import ClusterBenchmarkPlan, Figure
from bench.cluster.nodes import connect, create_cluster, running_cluster, start_nodes
from chronik.bench.errors import BenchmarkError
from chronik.bench.librdkafka_config import generate_name
from chronik.client.connection import BrokerConnection
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

UP_SECONDS_MAX: Final = 5.0
LEADERLESS_SECONDS_MAX: Final = 2.0
RETRY_SECONDS_MAX: Final = 60.0


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
