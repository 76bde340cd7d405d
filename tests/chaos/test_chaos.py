"""A real cluster with real clients under kills, pauses and network faults: no acknowledged record is lost, duplicated
or reordered, no response is stale, and every partition stays available. `make chaos` runs more faults for longer.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chronik.testing.cluster import Cluster
from tests.chaos import partition_states
from tests.chaos.clients import wait_for
from tests.chaos.evidence import Evidence
from tests.chaos.faults import Fault, Victims
from tests.chaos.harness import NODES, ChaosOptions, ChaosOutcome, run_chaos
from tests.chaos.history import Acknowledged, FaultBegan, FaultEnded, events_of_type
from tests.chaos.network import namespaces_unavailable_reason
from tests.chaos.report import count_node_responses, render_report
from tests.chaos.schedules import FAULT_KINDS, FaultKind
from tests.chaos.workloads import WORKLOADS
from tests.run_size import IS_LONG_RUN, SEED, sized

pytestmark = pytest.mark.xdist_group("cluster")

Summary = Callable[[str, object], None]

ONE_PARTITION = replace(WORKLOADS["queue"], partitions=1)
RATE = 60.0

FAULTS_OF_NETWORK = ("reject", "ring", "clock")
NO_NETWORK = namespaces_unavailable_reason()


def format_report(outcome: ChaosOutcome) -> str:
    return "\n".join(render_report(outcome))


def acknowledged(outcome: ChaosOutcome) -> int:
    return sum(1 for _ in events_of_type(outcome.events, Acknowledged))


def test_kills_and_pauses_of_minority_violate_no_guarantee(tmp_path: Path, record_property: Summary) -> None:
    steps = sized(2, 50)  # on a busy machine, a cluster takes longer to recover from one
    options = ChaosOptions(
        tmp_path, seconds=sized(120, 600), steps_max=steps, seed=SEED, faults=("kill", "pause"), rate=sized(30, 120)
    )
    outcome = run_chaos(options, print)
    assert not outcome.findings, format_report(outcome)
    assert outcome.steps >= sized(2, 30), format_report(outcome)
    assert acknowledged(outcome) > 10 * RATE, format_report(outcome)
    for fault in events_of_type(outcome.events, FaultBegan):
        (ended,) = (each for each in events_of_type(outcome.events, FaultEnded) if each.number == fault.number)
        assert ended.progressed_s is not None or not fault.demands_progress, format_report(outcome)
    record_property(
        "summary", f"chaos: {outcome.steps} faults, {acknowledged(outcome):,} records acknowledged, no violations"
    )


@pytest.mark.skipif(NO_NETWORK is not None, reason=f"no network namespaces: {NO_NETWORK}")
def test_network_faults_violate_no_guarantee(tmp_path: Path, record_property: Summary) -> None:
    steps = sized(len(FAULTS_OF_NETWORK), 40)
    faults = tuple(FAULT_KINDS) if IS_LONG_RUN else FAULTS_OF_NETWORK
    options = ChaosOptions(
        tmp_path,
        seconds=sized(180, 800),
        steps_max=steps,
        seed=SEED,
        faults=faults,
        rate=sized(30, 60),
        has_network=True,
    )
    outcome = run_chaos(options, print)
    assert not outcome.findings, format_report(outcome)
    assert outcome.steps == steps, format_report(outcome)
    evidence = Evidence(outcome.events)
    assert len(evidence.acknowledged) > 10 * RATE, format_report(outcome)
    assert {event.node for event in evidence.topics_seen} == set(range(1, NODES + 1)), format_report(outcome)
    asked = f"{count_node_responses(evidence):,} responses of single nodes"
    record_property("summary", f"chaos: {outcome.steps} network faults, {asked}, no stale response")


# The checkers must detect a cluster that loses records.


def run_lossy_cluster(tmp_path: Path, fault: Fault, **options: Any) -> ChaosOutcome:
    kinds = FAULT_KINDS | {"loss": FaultKind(fault, hits_minority=False)}
    return run_chaos(ChaosOptions(tmp_path, steps_max=1, faults=("loss",), kinds=kinds, rate=RATE, **options), print)


@contextmanager
def leader_isolated(cluster: Cluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Isolate the leader until another one is elected."""
    (place,) = ONE_PARTITION.places()
    leader = partition_states.leader_of(cluster, place)
    other = next(node for node in cluster.nodes.values() if node.node_id != leader)
    cluster.isolate(leader)
    assert wait_for(
        lambda: (
            partition_states.read_partition_states(other, [place.topic])[place].leader
            not in (leader, partition_states.NOBODY)
        ),
        30,
    )
    yield f"node {leader}, which leads, cut off"
    cluster.restore_links()


def test_checker_detects_loss_with_acks_1(tmp_path: Path) -> None:
    """With acks=1, an isolated leader acknowledges records that no other node receives."""
    careless = replace(ONE_PARTITION, senders=({"acks": 1},))
    outcome = run_lossy_cluster(tmp_path, leader_isolated, workloads=(careless,))
    assert {"lost", "not monotonic"} <= {finding.kind for finding in outcome.findings}, format_report(outcome)


@contextmanager
def data_wiped(cluster: Cluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Delete the data of the only replica while its node is down."""
    node = cluster.nodes[partition_states.leader_of(cluster, ONE_PARTITION.places()[0])]
    node.kill()
    shutil.rmtree(node.data_dir / "topics")
    (node.data_dir / "synced-offsets").unlink()
    yield f"records of node {node.node_id} wiped"
    node.start()


def test_checker_detects_records_lost_by_restart(tmp_path: Path) -> None:
    outcome = run_lossy_cluster(tmp_path, data_wiped, workloads=(ONE_PARTITION,), replication=1, min_insync=1)
    assert {"lost", "inconsistent", "not monotonic"} <= {finding.kind for finding in outcome.findings}, format_report(
        outcome
    )
