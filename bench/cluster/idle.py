"""The cost of an idle cluster, and whether its leader is stable when other processes use the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.cluster.figures import ClusterBenchmarkPlan, Figure
from bench.cluster.nodes import create_partitions, running_cluster
from chronik.bench.statistics import MEGABYTE, read_cpu_seconds, read_resident_bytes
from chronik.testing.cluster import Cluster

CPU_PERCENT_MAX: Final = 3.0
PARTITIONS: Final = 1000
PARTITIONS_CPU_PERCENT_MAX: Final = 5.0
SETTLED_SECONDS: Final = 2.0


def measure_idle(plan: ClusterBenchmarkPlan) -> list[Figure]:
    """Measure CPU, terms and memory, one value per node."""
    with running_cluster(plan) as cluster:
        cluster.leader()
        time.sleep(SETTLED_SECONDS)
        resident_mb = [read_resident_bytes(node.pid) / MEGABYTE for node in cluster.live_nodes]
        cpu_alone, terms_alone = measure_idle_cluster(cluster, plan.idle_seconds)
        with _all_cores_busy():
            cpu_crowded, terms_crowded = measure_idle_cluster(cluster, plan.idle_seconds)
    busy = "while all cores are busy"
    return [
        Figure("idle CPU of a node, % of a core", cpu_alone, below=CPU_PERCENT_MAX),
        Figure(f"terms started in {plan.idle_seconds:g} s", terms_alone, below=1),
        Figure(f"idle CPU of a node {busy}, % of a core", cpu_crowded, below=CPU_PERCENT_MAX),
        Figure(f"terms started in {plan.idle_seconds:g} s {busy}", terms_crowded, below=1),
        Figure("memory of an idle node, MB", resident_mb),
    ]


def measure_idle_partitions(plan: ClusterBenchmarkPlan) -> list[Figure]:
    """Measure CPU and memory with many partitions, one value per node. Each node has a replica of every partition."""
    with running_cluster(plan) as cluster:
        create_partitions(cluster, PARTITIONS)
        time.sleep(SETTLED_SECONDS)
        cpu, _ = measure_idle_cluster(cluster, plan.idle_seconds)
        resident_mb = [read_resident_bytes(node.pid) / MEGABYTE for node in cluster.live_nodes]
    suffix = f"with {PARTITIONS:,} partitions of three replicas"
    return [
        Figure(f"idle CPU of a node {suffix}, % of a core", cpu, below=PARTITIONS_CPU_PERCENT_MAX),
        Figure(f"memory of an idle node {suffix}, MB", resident_mb),
    ]


def measure_idle_cluster(cluster: Cluster, seconds: float) -> tuple[list[float], list[float]]:
    """Return the CPU in percent and the change of the term for each node."""
    terms_before = [node.status()["term"] for node in cluster.live_nodes]
    cpu_before = [read_cpu_seconds(node.pid) for node in cluster.live_nodes]
    started = time.perf_counter()
    time.sleep(seconds)
    cpu_after = [read_cpu_seconds(node.pid) for node in cluster.live_nodes]
    elapsed_s = time.perf_counter() - started
    terms = [node.status()["term"] for node in cluster.live_nodes]
    percent = [100 * (after - before) / elapsed_s for before, after in zip(cpu_before, cpu_after, strict=True)]
    return percent, [float(after - before) for before, after in zip(terms_before, terms, strict=True)]


@contextmanager
def _all_cores_busy() -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
