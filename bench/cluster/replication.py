"""The cost of replication: three replicas with acks=all compared with one replica with acks=1, and single-ack latency.

Both are measured on the same cluster, interleaved within each round.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Final

from bench.cluster.figures import ClusterBenchmarkPlan, Figure
from bench.cluster.nodes import NODES, replicated_topic, running_cluster
from chronik.bench import acks, produce
from chronik.bench.produce import ProduceLoad
from chronik.bench.report import rotate_servers
from chronik.bench.statistics import MEGABYTE, MILLION, Latency, read_cpu_seconds
from chronik.testing.cluster import Cluster

FLUSHES: Final = ("group", "os")
SIZES: Final = (100, 1000)
PARTITIONS: Final = 6
"""So that each node leads two."""

ONE, THREE = "one replica, acks=1", "three replicas, acks=all"
SETUPS: Final = {ONE: (1, "1"), THREE: (NODES, "all")}
RATIO_LEAST: Final = 0.5
RECORDS: Final = 2000
"""Records per round for single-ack latency."""

Values = dict[tuple[str, int], list[float]]


def measure_replication(plan: ClusterBenchmarkPlan) -> list[Figure]:
    return [figure for flush in FLUSHES for figure in _with_flush(plan, flush)]


def _with_flush(plan: ClusterBenchmarkPlan, flush: str) -> list[Figure]:
    rates: Values = defaultdict(list)
    costs: Values = defaultdict(list)
    latencies = []
    with running_cluster(plan, flush=flush) as nodes:
        for setup in SETUPS:
            _produce_once(nodes, plan, setup, SIZES[-1])  # warm-up
        for number in range(plan.rounds):
            for size in SIZES:
                for setup in rotate_servers(list(SETUPS), number):
                    rate, cost = _produce_once(nodes, plan, setup, size)
                    rates[setup, size].append(rate)
                    costs[setup, size].append(cost)
            latencies.append(_measure_acks(nodes))
    return [
        *(_ratio(rates, size, flush) for size in SIZES),
        *(Figure(f"{setup}, {size} B, {flush}, records/s", values) for (setup, size), values in rates.items()),
        *(
            Figure(f"{setup}, {size} B, {flush}, CPU of all nodes, s per million", values)
            for (setup, size), values in costs.items()
        ),
        Figure(f"single records, {THREE}, {flush}, p50, ms", [latency.p50_ms for latency in latencies]),
        Figure(f"single records, {THREE}, {flush}, p99, ms", [latency.p99_ms for latency in latencies]),
    ]


def _ratio(rates: Values, size: int, flush: str) -> Figure:
    ratios = [three / one for three, one in zip(rates[THREE, size], rates[ONE, size], strict=True)]
    return Figure(f"{THREE} / {ONE}, {size} B, {flush}", ratios, at_least=RATIO_LEAST)


def _produce_once(nodes: Cluster, plan: ClusterBenchmarkPlan, setup: str, size: int) -> tuple[float, float]:
    """Produce records and return the rate and the CPU seconds of all nodes per million records."""
    replication_factor, acks_setting = SETUPS[setup]
    with replicated_topic(nodes, "copies", PARTITIONS, replication_factor) as topic:
        os.sync()  # an earlier round's dirty pages must not slow this one
        _touch_memory(NODES * plan.megabytes * MEGABYTE)
        records = plan.megabytes * MEGABYTE // size
        cpu_before_s = _cpu_seconds(nodes)
        rate = produce.measure(ProduceLoad(nodes.bootstrap, topic, records, size, acks_setting)).records_per_second
        return rate, (_cpu_seconds(nodes) - cpu_before_s) / records * MILLION


def _touch_memory(size: int) -> None:
    """Touch as much memory as the files will take in the page cache.

    A virtual machine gets its memory from the host on first use, which costs several times a write. Three replicas
    would pay that three times.
    """
    touched = b"x" * size
    del touched


def _cpu_seconds(nodes: Cluster) -> float:
    return sum(read_cpu_seconds(node.pid) for node in nodes.live_nodes)


def _measure_acks(nodes: Cluster) -> Latency:
    with replicated_topic(nodes, "acks", 1) as topic:
        return acks.measure(nodes.bootstrap, topic, RECORDS).latency
