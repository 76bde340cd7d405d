"""What copies cost: the throughput of three replicas with acks=all beside that of one with acks=1, on the same cluster
and in turn within each round; and how long one acknowledgement takes."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Final

from bench.cluster.figures import Figure, Plan
from bench.cluster.nodes import NODES, running_cluster
from bench.cluster.replicas import replicated_topic
from chronik.bench import acks, produce
from chronik.bench.measures import MEGABYTE, MILLION, Latency, cpu_seconds
from chronik.bench.produce import ProduceLoad
from chronik.bench.rounds import in_turn
from chronik.testing.cluster import Cluster

FLUSHES: Final = ("group", "os")
SIZES: Final = (100, 1000)
PARTITIONS: Final = 6
"""Two for each node to lead."""

ONE, THREE = "one replica, acks=1", "three replicas, acks=all"
WAYS: Final = {ONE: (1, "1"), THREE: (NODES, "all")}
RATIO_LEAST: Final = 0.5
RECORDS: Final = 2000
"""Of which single acknowledgements are timed, in each round."""

Values = dict[tuple[str, int], list[float]]


def measure_replication(plan: Plan) -> list[Figure]:
    return [figure for flush in FLUSHES for figure in _with_flush(plan, flush)]


def _with_flush(plan: Plan, flush: str) -> list[Figure]:
    rates: Values = defaultdict(list)
    costs: Values = defaultdict(list)
    latencies = []
    with running_cluster(plan, flush=flush) as nodes:
        for way in WAYS:
            _produce_once(nodes, plan, way, SIZES[-1])  # every code path has run
        for number in range(plan.rounds):
            for size in SIZES:
                for way in in_turn(list(WAYS), number):
                    rate, cost = _produce_once(nodes, plan, way, size)
                    rates[way, size].append(rate)
                    costs[way, size].append(cost)
            latencies.append(_acknowledge_once(nodes))
    return [
        *(_ratio(rates, size, flush) for size in SIZES),
        *(Figure(f"{way}, {size} B, {flush}, records/s", values) for (way, size), values in rates.items()),
        *(Figure(f"{way}, {size} B, {flush}, CPU of all nodes, s/M", values) for (way, size), values in costs.items()),
        Figure(f"single records, {THREE}, {flush}, p50, ms", [latency.p50_ms for latency in latencies]),
        Figure(f"single records, {THREE}, {flush}, p99, ms", [latency.p99_ms for latency in latencies]),
    ]


def _ratio(rates: Values, size: int, flush: str) -> Figure:
    ratios = [three / one for three, one in zip(rates[THREE, size], rates[ONE, size], strict=True)]
    return Figure(f"{THREE}, of {ONE}, {size} B, {flush}", ratios, at_least=RATIO_LEAST)


def _produce_once(nodes: Cluster, plan: Plan, way: str, size: int) -> tuple[float, float]:
    """Records per second, and the seconds of CPU that all nodes together took for a million of them."""
    copies, acks_wanted = WAYS[way]
    with replicated_topic(nodes, "copies", PARTITIONS, copies) as topic:
        os.sync()  # what an earlier round left in the page cache must not slow this one
        _touch_memory(NODES * plan.megabytes * MEGABYTE)
        records = plan.megabytes * MEGABYTE // size
        used_s = _used_seconds(nodes)
        rate = produce.measure(ProduceLoad(nodes.bootstrap, topic, records, size, acks_wanted)).records_per_second
        return rate, (_used_seconds(nodes) - used_s) / records * MILLION


def _touch_memory(size: int) -> None:
    """A virtual machine gets its memory from the host when it is first touched, at several times the cost of writing to
    it. Three copies would pay that three times; so the pages that files will take are had before."""
    touched = b"x" * size
    del touched


def _used_seconds(nodes: Cluster) -> float:
    return sum(cpu_seconds(node.pid) for node in nodes.live)


def _acknowledge_once(nodes: Cluster) -> Latency:
    with replicated_topic(nodes, "acks", 1) as topic:
        return acks.measure(nodes.bootstrap, topic, RECORDS).latency
