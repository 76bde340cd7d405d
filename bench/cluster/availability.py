"""The time until three nodes form a cluster, and until the survivors elect a new leader."""

from __future__ import annotations

import time
from typing import Final

from bench.cluster.figures import Figure, Plan
from bench.cluster.nodes import connect, fresh_cluster, running_cluster, start
from chronik.bench.clients import unique_name
from chronik.bench.errors import BenchFailed
from chronik.client.connection import Connection
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

UP_SECONDS_MAX: Final = 5.0
LEADERLESS_SECONDS_MAX: Final = 2.0
GIVEN_UP_SECONDS: Final = 60.0


def measure_up(plan: Plan) -> list[Figure]:
    """Measure the time from starting three empty nodes until each lists all three."""
    rounds = [_up_once(plan) for _ in range(1 + plan.rounds)]
    del rounds[0]  # compiled the modules, once
    return [Figure("cluster up until all nodes list all, s", rounds, below=UP_SECONDS_MAX)]


def _up_once(plan: Plan) -> float:
    with fresh_cluster(plan) as cluster:
        started = time.perf_counter()
        start(cluster)
        cluster.wait_until_listed(cluster.nodes)
        return time.perf_counter() - started


def measure_leaderless(plan: Plan) -> list[Figure]:
    """Measure the time from kill -9 of the leader until a survivor accepts a metadata change."""
    rounds = []
    with running_cluster(plan) as cluster:
        for _ in range(plan.rounds):
            leader = cluster.leader()
            survivor = next(node for node in cluster.live if node is not leader)
            connection = connect(survivor)
            started = time.perf_counter()
            leader.kill()
            write_until_it_succeeds(connection)
            rounds.append(time.perf_counter() - started)
            connection.close()
            leader.start()
            cluster.wait_until_ready()
    return [Figure("without a leader after kill -9, s", rounds, below=LEADERLESS_SECONDS_MAX)]


def write_until_it_succeeds(connection: Connection) -> None:
    """Retry creating a topic until it succeeds. If it exists already, an earlier attempt has succeeded after all."""
    topic = CreatableTopic(name=unique_name("leaderless"), num_partitions=1, replication_factor=-1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(GIVEN_UP_SECONDS * 1000))
    deadline = time.monotonic() + GIVEN_UP_SECONDS
    while time.monotonic() < deadline:
        (created,) = connection.request(request, CreateTopicsResponse).topics
        if created.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
    raise BenchFailed(f"no metadata was written for {GIVEN_UP_SECONDS:g} s after the leader was killed")
