"""Offset commits through the Kafka protocol: `chronik bench commits`, against three nodes."""

from __future__ import annotations

from typing import Final

from bench.cluster.figures import ClusterBenchmarkPlan, Figure
from bench.cluster.nodes import running_cluster
from chronik.bench.arguments import CLIENT_ID
from chronik.bench.commits import CommitsLoad, measure
from chronik.client.cluster import ClusterClient

REQUESTS_PER_SECOND: Final = 1100
"""Slightly above the target, because the last responses arrive after the last request was due."""

REQUESTS_PER_SECOND_LEAST: Final = 1000
OFFSETS_PER_SECOND_LEAST: Final = 10_000
P99_MS_MAX: Final = 100.0

MANY_GROUPS: Final = 200
SINGLE_REQUESTS_PER_SECOND_LEAST: Final = 10_000
"""The target for requests with one offset each from MANY_GROUPS groups."""


def measure_commits(plan: ClusterBenchmarkPlan) -> list[Figure]:
    """Measure the latency at a constant rate, and the maximum rate in a closed loop."""
    with running_cluster(plan) as nodes, ClusterClient(nodes.bootstrap, client_id=CLIENT_ID) as cluster:
        steady_load = CommitsLoad(seconds=plan.seconds, rate=REQUESTS_PER_SECOND)
        steady, fastest = [], []
        for _ in range(plan.rounds):
            steady.append(measure(cluster, steady_load))
            fastest.append(measure(cluster, CommitsLoad(seconds=plan.seconds)))
    groups, offsets = steady_load.groups, steady_load.offsets
    return [
        Figure(
            f"commits of {groups} groups with {offsets} offsets each, offsets/s",
            [result.offsets_per_second for result in steady],
            at_least=OFFSETS_PER_SECOND_LEAST,
        ),
        Figure("requests/s", [result.requests_per_second for result in steady], at_least=REQUESTS_PER_SECOND_LEAST),
        Figure("p99, ms", [result.latency.p99_ms for result in steady], below=P99_MS_MAX),
        Figure("p50, ms", [result.latency.p50_ms for result in steady]),
        Figure("closed loop, offsets/s", [result.offsets_per_second for result in fastest]),
        Figure("closed loop, p99, ms", [result.latency.p99_ms for result in fastest]),
    ]


def measure_single_commits(plan: ClusterBenchmarkPlan) -> list[Figure]:
    """Measure requests with one offset each in a closed loop, with one connection per group."""
    with running_cluster(plan) as nodes, ClusterClient(nodes.bootstrap, client_id=CLIENT_ID) as cluster:
        pids = [node.pid for node in nodes.nodes.values()]
        load = CommitsLoad(groups=MANY_GROUPS, offsets=1, seconds=plan.seconds, broker_pids=pids)
        results = [measure(cluster, load) for _ in range(plan.rounds)]
    return [
        Figure(
            f"commits of {MANY_GROUPS} groups with one offset each, requests/s",
            [result.requests_per_second for result in results],
            at_least=SINGLE_REQUESTS_PER_SECOND_LEAST,
        ),
        Figure("p99, ms", [result.latency.p99_ms for result in results], below=P99_MS_MAX),
        Figure("p50, ms", [result.latency.p50_ms for result in results]),
        Figure("CPU of all nodes per request, µs", [result.brokers_us_per_request or 0.0 for result in results]),
        Figure("CPU of the client per request, µs", [result.client_us_per_request for result in results]),
    ]
