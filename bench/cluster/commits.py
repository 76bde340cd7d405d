"""Offset commits through the Kafka protocol: `chronik bench commits`, against three nodes."""

from __future__ import annotations

from typing import Final

from bench.cluster.figures import Figure, Plan
from bench.cluster.nodes import running_cluster
from chronik.bench.arguments import CLIENT_ID
from chronik.bench.commits import CommitsLoad, measure
from chronik.client.cluster import Cluster

REQUESTS_PER_SECOND: Final = 1100
"""Somewhat more than what is wanted, for the last answers come after the last request was due."""

REQUESTS_PER_SECOND_LEAST: Final = 1000
OFFSETS_PER_SECOND_LEAST: Final = 10_000
P99_MS_MAX: Final = 100.0


def measure_commits(plan: Plan) -> list[Figure]:
    """At the rate that is wanted, which tells the latency, and as fast as answers come, which tells the limit."""
    with running_cluster(plan) as nodes, Cluster(nodes.bootstrap, client_id=CLIENT_ID) as cluster:
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
        Figure(
            "their requests/s", [result.requests_per_second for result in steady], at_least=REQUESTS_PER_SECOND_LEAST
        ),
        Figure("their p99, ms", [result.latency.p99_ms for result in steady], below=P99_MS_MAX),
        Figure("their p50, ms", [result.latency.p50_ms for result in steady]),
        Figure("offsets/s when every group waits only for itself", [result.offsets_per_second for result in fastest]),
        Figure("p99 then, ms", [result.latency.p99_ms for result in fastest]),
    ]
