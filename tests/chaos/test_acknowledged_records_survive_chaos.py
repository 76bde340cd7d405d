"""A real cluster, real clients, kills and pauses: nothing acknowledged is lost, doubled or out of order, and every
partition goes on. `make chaos` does the same with more faults, for longer."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from chronik.testing.cluster import Cluster
from tests.chaos.evidence import Evidence
from tests.chaos.faults import KINDS, Kind, Victims
from tests.chaos.harness import Options, Outcome, run_chaos
from tests.chaos.history import FaultBegan, FaultEnded, of_kind
from tests.chaos.report import report
from tests.chaos.workloads import WORKLOADS
from tests.long import SEED, count

pytestmark = pytest.mark.xdist_group("cluster")

Summary = Callable[[str, object], None]

ONE_PARTITION = replace(WORKLOADS["queue"], partitions=1)
RATE = 60.0


def told(outcome: Outcome) -> str:
    return "\n".join(report(outcome))


def acknowledged(outcome: Outcome) -> int:
    return len(Evidence(outcome.events).acknowledged)


def test_nothing_goes_wrong_when_a_minority_is_killed_or_paused(tmp_path: Path, record_property: Summary) -> None:
    steps = count(3, 50)
    options = Options(
        tmp_path, seconds=count(25, 600), steps_max=steps, seed=SEED, faults=("kill", "pause"), rate=count(60, 120)
    )
    outcome = run_chaos(options, print)
    assert not outcome.findings, told(outcome)
    assert outcome.steps >= count(2, 30), told(outcome)
    assert acknowledged(outcome) > 10 * RATE, told(outcome)
    for fault in of_kind(outcome.events, FaultBegan):
        (ended,) = (each for each in of_kind(outcome.events, FaultEnded) if each.number == fault.number)
        assert ended.progressed_s is not None or not fault.demands_progress, told(outcome)
    record_property(
        "summary", f"chaos: {outcome.steps} faults, {acknowledged(outcome):,} records acknowledged, nothing went wrong"
    )


def test_nobody_notices_when_nodes_that_lead_nothing_are_killed_or_paused(tmp_path: Path) -> None:
    options = Options(
        tmp_path,
        steps_max=2,
        faults=("kill", "pause"),
        workloads=(ONE_PARTITION,),
        rate=RATE,
        replication=1,
        min_insync=1,
        spares_leaders=True,
    )
    outcome = run_chaos(options, print)
    assert not outcome.findings, told(outcome)
    assert outcome.steps == 2
    assert acknowledged(outcome) > 2 * RATE
    assert all(event.progressed_s is not None for event in of_kind(outcome.events, FaultEnded)), told(outcome)


@contextmanager
def wiped(cluster: Cluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Killed, and its records gone when it comes back: what no cluster may do to a single copy."""
    for victim in victims:
        victim.kill()
        shutil.rmtree(victim.data_dir / "topics")
        (victim.data_dir / "synced-offsets").unlink()
    yield "records wiped"
    for victim in victims:
        victim.start()


def test_a_cluster_that_loses_records_is_found_out(tmp_path: Path) -> None:
    options = Options(
        tmp_path,
        steps_max=1,
        seed=5,
        faults=("wipe",),
        workloads=(ONE_PARTITION,),
        rate=RATE,
        replication=1,
        min_insync=1,
        kinds=KINDS | {"wipe": Kind(wiped, hits_minority=False)},
    )
    outcome = run_chaos(options, print)
    kinds = {finding.kind for finding in outcome.findings}
    assert {"lost", "inconsistent", "not monotonic"} <= kinds, told(outcome)
