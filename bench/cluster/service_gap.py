"""The unavailability of a partition after kill -9 of its leader, as seen by clients with default settings.

The topic has a partition per node, but only one receives records. A consumer's fetches of the others wait at the
survivors and block its other requests there, which is the harder case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bench.cluster.figures import ClusterBenchmarkPlan, Figure
from bench.cluster.nodes import NODES, running_cluster
from bench.cluster.replicas import create_partitions, find_partition_led_by, replicated_topic, wait_until_in_sync
from chronik.bench.gaps import AvailabilityProbe, ServiceAvailability
from chronik.testing.cluster import Cluster, ClusterNode

GAP_SECONDS_MAX: Final = 3.0
OTHER_PARTITIONS: Final = (0, 1000)
BEFORE_SECONDS: Final = 1.0
AFTER_SECONDS: Final = 3.0
"""Observed after the recovery, to detect another interruption."""

GIVEN_UP_SECONDS: Final = 60.0


def measure_service_gap(plan: ClusterBenchmarkPlan) -> list[Figure]:
    """Measure rounds in which the killed node is the controller, and rounds in which it is not."""
    figures: list[Figure] = []
    for count in OTHER_PARTITIONS:
        with running_cluster(plan) as nodes:
            create_partitions(nodes, count)
            figures += _figures(nodes, plan, f", {count:,} partitions" if count else "")
    return figures


def _figures(nodes: Cluster, plan: ClusterBenchmarkPlan, where: str) -> Iterator[Figure]:
    rounds = {"controller": _rounds(nodes, plan, True), "another node": _rounds(nodes, plan, False)}
    for killed, availability in rounds.items():
        prefix = f"kill -9 of a leader, {killed}{where}"
        without_ack = [service.longest_without_ack_seconds for service in availability]
        without_record = [service.longest_without_record_seconds for service in availability]
        yield Figure(f"{prefix}: without an ack, s", without_ack, below=GAP_SECONDS_MAX)
        yield Figure(f"{prefix}: without a record consumed, s", without_record, below=GAP_SECONDS_MAX)


def _rounds(nodes: Cluster, plan: ClusterBenchmarkPlan, is_controller: bool) -> list[ServiceAvailability]:
    return [_kill_once(nodes, is_controller) for _ in range(plan.rounds)]


def _kill_once(nodes: Cluster, is_controller: bool) -> ServiceAvailability:
    controller = nodes.leader()
    killed = controller if is_controller else next(node for node in nodes.live_nodes if node is not controller)
    with replicated_topic(nodes, "gap", NODES) as topic:
        availability = _observe_kill(nodes, topic, killed)
        killed.start()
        nodes.wait_until_ready()
        wait_until_in_sync(nodes)
    return availability


def _observe_kill(nodes: Cluster, topic: str, killed: ClusterNode) -> ServiceAvailability:
    with AvailabilityProbe(nodes.bootstrap, topic, find_partition_led_by(nodes, topic, killed)) as probe:
        probe.run_for(BEFORE_SECONDS)
        killed.kill()
        probe.wait_until_available(GIVEN_UP_SECONDS)
        probe.run_for(AFTER_SECONDS)
    return probe.summarize()
