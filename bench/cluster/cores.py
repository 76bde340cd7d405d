"""One node compared with two on the same machine, each node pinned to its own core: the benefit of a second event loop.

Clients are not pinned. On two cores, all processes compete: one pinned node leaves a core to its clients, two leave
none. The figure that applies to larger machines is therefore CPU per record.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.cluster.figures import ClusterBenchmarkPlan, Figure
from bench.cluster.nodes import replicated_topic, running_cluster
from chronik.bench import consume, produce
from chronik.bench.consume import ConsumeLoad, ConsumeResult
from chronik.bench.errors import BenchmarkError
from chronik.bench.produce import BATCH_RECORDS_MAX, ProduceLoad, ProduceResult
from chronik.bench.report import rotate_servers
from chronik.bench.statistics import MEGABYTE, MILLION, read_cpu_seconds
from chronik.testing.cluster import Cluster

NODE_COUNTS: Final = {"one node": 1, "two nodes": 2}
CLIENTS: Final = 2
"""Client processes; a single one would be the bottleneck for two nodes."""

PARTITIONS: Final = 4
SIZE: Final = 100
SMALL_BATCH: Final = 10
SMALL_SHARE: Final = 30
"""Small batches write this fraction (1/n) of the bytes, because they are slower."""

LARGE, SMALL, READ = "produce in large batches", f"produce in batches of {SMALL_BATCH}", "consume"


class CoreFigures(NamedTuple):
    """Throughput and CPU of one load."""

    records_per_second: float
    node_cpu: float
    client_cpu: float
    """CPU seconds per million records, of all nodes and of all clients."""


def measure_cores(plan: ClusterBenchmarkPlan) -> list[Figure]:
    """Measure all loads on one and on two nodes. Raises BenchFailed on a machine with one core."""
    if len(os.sched_getaffinity(0)) < max(NODE_COUNTS.values()):
        raise BenchmarkError("two cores are required, one per node")
    measured: dict[tuple[str, str], list[CoreFigures]] = defaultdict(list)
    with ExitStack() as stack:
        clusters = {setup: stack.enter_context(_pinned_cluster(plan, count)) for setup, count in NODE_COUNTS.items()}
        spawn_context = multiprocessing.get_context("spawn")
        clients = stack.enter_context(ProcessPoolExecutor(CLIENTS, mp_context=spawn_context))
        for number in range(1 + plan.rounds):
            for setup in rotate_servers(list(NODE_COUNTS), number):
                for load, figures in _run_round(clusters[setup], clients, plan.megabytes * MEGABYTE // SIZE):
                    if number:  # the first round is a warm-up
                        measured[load, setup].append(figures)
    return [figure for load in (LARGE, SMALL, READ) for figure in _to_figures(measured, load)]


@contextmanager
def _pinned_cluster(plan: ClusterBenchmarkPlan, count: int) -> Iterator[Cluster]:
    with running_cluster(plan, count, replication_factor=1, min_insync_replicas=1) as nodes:
        for core, node in zip(sorted(os.sched_getaffinity(0)), nodes.live_nodes, strict=False):
            for thread in Path(f"/proc/{node.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {core})
        yield nodes


def _run_round(nodes: Cluster, clients: ProcessPoolExecutor, records: int) -> Iterator[tuple[str, CoreFigures]]:
    for load, count, batch in ((SMALL, records // SMALL_SHARE, SMALL_BATCH), (LARGE, records, BATCH_RECORDS_MAX)):
        with replicated_topic(nodes, "cores", PARTITIONS, 1) as topic:
            os.sync()  # an earlier round's dirty pages must not slow this one
            produced = ProduceLoad(nodes.bootstrap, topic, count // CLIENTS, SIZE, batch_records=batch)
            cpu_before = _node_cpu_seconds(nodes)
            yield (
                load,
                _combine(
                    list(clients.map(produce.measure, [produced] * CLIENTS)), _node_cpu_seconds(nodes) - cpu_before
                ),
            )
            if load == LARGE:
                consumed = ConsumeLoad(nodes.bootstrap, topic, PARTITIONS, count)
                cpu_before = _node_cpu_seconds(nodes)
                yield (
                    READ,
                    _combine(
                        list(clients.map(consume.measure, [consumed] * CLIENTS)), _node_cpu_seconds(nodes) - cpu_before
                    ),
                )


def _combine(results: Sequence[ProduceResult | ConsumeResult], cpu_s: float) -> CoreFigures:
    """Combine the results of concurrent clients."""
    records = sum(result.records for result in results)
    client_cpu = sum(result.client_cpu_s_per_million * result.records for result in results) / records
    return CoreFigures(sum(result.records_per_second for result in results), cpu_s / records * MILLION, client_cpu)


def _node_cpu_seconds(nodes: Cluster) -> float:
    return sum(read_cpu_seconds(node.pid) for node in nodes.live_nodes)


def _to_figures(measured: dict[tuple[str, str], list[CoreFigures]], load: str) -> Iterator[Figure]:
    one, two = (measured[load, setup] for setup in NODE_COUNTS)
    ratios = [larger.records_per_second / smaller.records_per_second for smaller, larger in zip(one, two, strict=True)]
    yield Figure(f"{load}, {SIZE} B: two nodes / one node", ratios)
    for setup in NODE_COUNTS:
        rounds = measured[load, setup]
        yield Figure(f"{load}, {SIZE} B: {setup}, records/s", [each.records_per_second for each in rounds])
        yield Figure(f"{load}, {SIZE} B: {setup}, CPU of nodes, s per million", [each.node_cpu for each in rounds])
        yield Figure(f"{load}, {SIZE} B: {setup}, CPU of clients, s per million", [each.client_cpu for each in rounds])
