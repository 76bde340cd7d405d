"""How fast a restarted node replicates what was written during its absence."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from bench.cluster.figures import ClusterBenchmarkPlan, Figure
from bench.cluster.nodes import replicated_topic, running_cluster, wait_until_in_sync
from chronik.bench import produce
from chronik.bench.errors import BenchmarkError
from chronik.bench.produce import ProduceLoad
from chronik.bench.statistics import MEGABYTE
from chronik.testing.cluster import Cluster, ClusterNode

PARTITIONS: Final = 6
RECORD_BYTES: Final = 1000
POLL_SECONDS: Final = 0.01
BEGIN_SECONDS_MAX: Final = 60.0


class CatchUpResult(NamedTuple):
    """The amount of data and the duration of one catch-up."""

    megabytes: float
    copying_seconds: float
    """From the first growth of its files until it is in sync."""
    all_seconds: float
    """From its start until it is in sync."""


def measure_catch_up(plan: ClusterBenchmarkPlan) -> list[Figure]:
    with running_cluster(plan) as nodes:
        rounds = [_catch_up_once(nodes, plan) for _ in range(plan.rounds)]
    return [
        Figure("a node that was away catches up, MB/s", [each.megabytes / each.copying_seconds for each in rounds]),
        Figure(
            f"from its start until it has {plan.megabytes:,} MB and is in sync, s",
            [each.all_seconds for each in rounds],
        ),
    ]


def _catch_up_once(nodes: Cluster, plan: ClusterBenchmarkPlan) -> CatchUpResult:
    with replicated_topic(nodes, "away", PARTITIONS) as topic:
        away = next(node for node in nodes.live_nodes if node is not nodes.leader())
        away.stop()
        records = plan.megabytes * MEGABYTE // RECORD_BYTES
        live = ",".join(node.bootstrap for node in nodes.live_nodes)
        produce.measure(ProduceLoad(live, topic, records, RECORD_BYTES))
        os.sync()  # leaves the disk to the measurement
        before_bytes = _log_bytes(away.data_dir)
        started = time.perf_counter()
        away.start()
        _wait_until_growing(away, before_bytes)
        growth_started = time.perf_counter()
        wait_until_in_sync(nodes)
        ended = time.perf_counter()
        copied = _log_bytes(away.data_dir) - before_bytes
    return CatchUpResult(copied / MEGABYTE, ended - growth_started, ended - started)


def _wait_until_growing(node: ClusterNode, before_bytes: int) -> None:
    deadline = time.monotonic() + BEGIN_SECONDS_MAX
    while _log_bytes(node.data_dir) < before_bytes + MEGABYTE:  # a start writes less metadata than that
        if time.monotonic() > deadline:
            raise BenchmarkError(f"node {node.node_id} copied nothing within {BEGIN_SECONDS_MAX:g} s")
        time.sleep(POLL_SECONDS)


def _log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*.log"))
