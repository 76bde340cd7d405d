"""Seeded simulation of commits to an Iceberg catalog. A failure's seed is the test's parameter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chronik.pipeline.tables.iceberg.commit_protocol import (
    CommitRequest,
    Committed,
    Outcome,
    SnapshotCommit,
)
from chronik.pipeline.tables.iceberg.landed_offsets import LandedOffsets
from tests.pipeline.tables.iceberg import simulated_catalog
from tests.pipeline.tables.iceberg.simulated_catalog import SimulatedWriter, Simulation
from tests.run_size import SEED, sized

SEEDS = sized(40, 10_000)
STEPS = 250
MUTANT_SEEDS = 400


def test_every_offset_is_in_one_file_whatever_is_lost_repeated_or_delayed() -> None:
    commits = 0
    for seed in range(SEED * SEEDS, SEED * SEEDS + SEEDS):
        try:
            simulation = Simulation(seed)
            simulation.run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        commits += sum(writer.reported for writer in simulation.writers)
    assert commits > 5 * SEEDS


def test_same_seed_gives_the_same_trace() -> None:
    first, second = Simulation(SEED), Simulation(SEED)
    first.run(STEPS)
    second.run(STEPS)
    assert first.trace == second.trace
    assert len(set(first.trace)) > 10


def test_rolled_back_table_stops_all_writers() -> None:
    stopped = 0
    for seed in range(SEED * SEEDS, SEED * SEEDS + SEEDS):
        simulation = Simulation(seed, rolls_back=True)
        simulation.run(STEPS)
        is_rolled_back = simulation.catalog.metadata.read_offsets().is_rolled_back
        stopped += is_rolled_back
        assert not is_rolled_back or all(writer.stopped_by is not None for writer in simulation.writers)
    assert stopped > SEEDS // 10


def test_rollback_below_expired_snapshots_is_detected_by_sequence_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_catalog, "encode_properties", lambda landed, _: landed.encode())
    assert any(_fails(Simulation(seed, rolls_back=True)) for seed in range(MUTANT_SEEDS))


class TrustsConflicts(SnapshotCommit):
    """A mutant that takes every conflict for a proof that the request was not applied."""

    def responded(self, outcome: Outcome) -> None:
        super().responded(outcome if outcome is Outcome.ACCEPTED else Outcome.REJECTED)


class ReportsUnknownAsDone(SnapshotCommit):
    """A mutant that reports a commit as done although its response was lost."""

    def responded(self, outcome: Outcome) -> None:
        super().responded(outcome)
        if outcome is Outcome.UNKNOWN and self._request is not None:
            self.action = Committed(self._request.snapshot_id)


class WithoutProperty(SimulatedWriter):
    """A mutant that stores offsets in snapshots only, so that an expiry by another tool loses them."""

    def _build_properties(self, landed: LandedOffsets, sequence_number: int) -> dict[str, str]:
        return {}


class AddsRowsAgain(SimulatedWriter):
    """A mutant driver whose repeated plan has the files of its first one."""

    def _plan(self, request: CommitRequest) -> None:
        if self._request is None or self._request.requirements.snapshot_id == request.snapshot_id:
            super()._plan(request)
            return
        assert self._seen is not None
        assert self._commit is not None
        files = self._seen.files | set(self._files)
        snapshot = replace(self._request.snapshot, parent_id=request.parent_id, files=files)
        self._request = replace(self._request, requirements=request, snapshot=snapshot)
        self._commit.planned()


@pytest.mark.parametrize(
    "mutant",
    [
        {"make": TrustsConflicts},
        {"make": ReportsUnknownAsDone},
        {"writer": WithoutProperty},
        {"writer": AddsRowsAgain},
    ],
    ids=lambda mutant: next(iter(mutant.values())).__name__,
)
def test_simulation_detects_broken_rule(mutant: dict[str, Any]) -> None:
    assert any(_fails(Simulation(seed, **mutant)) for seed in range(MUTANT_SEEDS))


def test_simulation_detects_catalog_without_requirements() -> None:
    def run(seed: int) -> bool:
        simulation = Simulation(seed)
        simulation.catalog.check_requirements = False
        return _fails(simulation)

    assert any(map(run, range(MUTANT_SEEDS)))


def _fails(simulation: Simulation) -> bool:
    try:
        simulation.run(STEPS)
    except AssertionError:
        return True
    return False
