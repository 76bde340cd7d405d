"""One node against two on the same machine, each pinned to a core of its own: what a second event loop is worth. Nodes
are all that is pinned; clients run where there is time left, as they do on a machine that they share with nodes.

On two cores it is a race for the same processor: a pinned node that is alone leaves one core to its clients, two of
them leave none. So the figure to carry to larger machines is CPU per record, told beside throughput."""

from __future__ import annotations

import multiprocessing
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.cluster.figures import Figure, Plan
from bench.cluster.nodes import running_cluster
from bench.cluster.replicas import replicated_topic
from chronik.bench import consume, produce
from chronik.bench.consume import ConsumeLoad, ConsumeResult
from chronik.bench.errors import BenchFailed
from chronik.bench.measures import MEGABYTE, MILLION, cpu_seconds
from chronik.bench.produce import BATCH_RECORDS_MAX, ProduceLoad, ProduceResult
from chronik.bench.rounds import in_turn
from chronik.testing.cluster import Cluster

WAYS: Final = {"one node": 1, "two nodes": 2}
CLIENTS: Final = 2
"""Processes: one would be the limit of two nodes."""

PARTITIONS: Final = 4
SIZE: Final = 100
SMALL_BATCH: Final = 10
SMALL_SHARE: Final = 30
"""Of the bytes of large batches, what is written in small ones: these take so much longer."""

LARGE, SMALL, READ = "produce in large batches", f"produce in batches of {SMALL_BATCH}", "consume"


class Figures(NamedTuple):
    records_per_second: float
    node_cpu: float
    client_cpu: float
    """Seconds for a million records, of all nodes and of all clients."""


def measure_cores(plan: Plan) -> list[Figure]:
    """Raises BenchFailed where there are not two cores."""
    if len(os.sched_getaffinity(0)) < max(WAYS.values()):
        raise BenchFailed("there is only one core to pin nodes to")
    measured: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    with ExitStack() as undo:
        clusters = {way: undo.enter_context(_pinned(plan, count)) for way, count in WAYS.items()}
        spawned = multiprocessing.get_context("spawn")
        clients = undo.enter_context(ProcessPoolExecutor(CLIENTS, mp_context=spawned))
        for number in range(1 + plan.rounds):
            for way in in_turn(list(WAYS), number):
                for load, figures in _one_round(clusters[way], clients, plan.megabytes * MEGABYTE // SIZE):
                    if number:  # in the first, every code path has run
                        measured[load, way].append(figures)
    return [figure for load in (LARGE, SMALL, READ) for figure in _told(measured, load)]


@contextmanager
def _pinned(plan: Plan, count: int) -> Iterator[Cluster]:
    with running_cluster(plan, count, replication_factor=1, min_insync_replicas=1) as nodes:
        for core, node in zip(sorted(os.sched_getaffinity(0)), nodes.live, strict=False):
            for thread in Path(f"/proc/{node.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {core})
        yield nodes


def _one_round(nodes: Cluster, clients: ProcessPoolExecutor, records: int) -> Iterator[tuple[str, Figures]]:
    for load, count, batch in ((SMALL, records // SMALL_SHARE, SMALL_BATCH), (LARGE, records, BATCH_RECORDS_MAX)):
        with replicated_topic(nodes, "cores", PARTITIONS, 1) as topic:
            os.sync()  # what an earlier round left in the page cache must not slow this one
            produced = ProduceLoad(nodes.bootstrap, topic, count // CLIENTS, SIZE, batch_records=batch)
            used = _used(nodes)
            yield load, _summed(list(clients.map(produce.measure, [produced] * CLIENTS)), _used(nodes) - used)
            if load == LARGE:
                consumed = ConsumeLoad(nodes.bootstrap, topic, PARTITIONS, count)
                used = _used(nodes)
                yield READ, _summed(list(clients.map(consume.measure, [consumed] * CLIENTS)), _used(nodes) - used)


def _summed(results: Sequence[ProduceResult | ConsumeResult], used_s: float) -> Figures:
    """Clients begin and end at about the same time."""
    records = sum(result.records for result in results)
    client_cpu = sum(result.client_cpu_s_per_million * result.records for result in results) / records
    return Figures(sum(result.records_per_second for result in results), used_s / records * MILLION, client_cpu)


def _used(nodes: Cluster) -> float:
    return sum(cpu_seconds(node.pid) for node in nodes.live)


def _told(measured: dict[tuple[str, str], list[Figures]], load: str) -> Iterator[Figure]:
    one, two = (measured[load, way] for way in WAYS)
    ratios = [many.records_per_second / few.records_per_second for few, many in zip(one, two, strict=True)]
    yield Figure(f"{load}, {SIZE} B: two nodes, of one", ratios)
    for way in WAYS:
        rounds = measured[load, way]
        yield Figure(f"{load}, {SIZE} B: {way}, records/s", [each.records_per_second for each in rounds])
        yield Figure(f"{load}, {SIZE} B: {way}, CPU of nodes, s/M", [each.node_cpu for each in rounds])
        yield Figure(f"{load}, {SIZE} B: {way}, CPU of clients, s/M", [each.client_cpu for each in rounds])
