"""The simulation of a Raft cluster under faults, for many seeds: see `simulation` and `checker`."""

from __future__ import annotations

import pytest

from chronik.raft import reads
from tests.raft.checker import Violation
from tests.raft.simulation import RaftSimulation
from tests.run_size import SEED, sized

pytestmark = pytest.mark.slow

SEEDS = sized(50, 10_000)
PART = 25
"""Seeds per test, so that pytest-xdist can distribute them."""
FIRST = (SEED - 1) * SEEDS + 1


def run(seed: int) -> RaftSimulation:
    simulation = RaftSimulation(seed)
    try:
        simulation.run()
    except Exception as error:
        replay = f".venv/bin/python -m tests.raft.simulate --seed {seed}"
        raise AssertionError(f"seed {seed} violates a property: {error} (to replay it: {replay})") from error
    return simulation


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, PART))
def test_safety_holds_under_faults_and_cluster_converges_afterwards(first: int) -> None:
    simulations = [run(seed) for seed in range(first, first + PART)]
    checkers = [simulation.checker for simulation in simulations]
    assert sum(checker.last_committed for checker in checkers) > 50 * PART
    assert sum(checker.terms_led for checker in checkers) > 3 * PART
    assert sum(checker.reads_confirmed for checker in checkers) > 5 * PART
    assert sum(checker.memberships_committed for checker in checkers) > PART
    assert sum(checker.snapshots_installed for checker in checkers) > PART // 2


def test_same_seed_produces_same_trace() -> None:
    first, second, other = run(FIRST), run(FIRST), run(FIRST + 1)
    assert first.steps == second.steps > 500
    assert first.trace_hash() == second.trace_hash() != other.trace_hash()


def test_failing_seed_reports_replay_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.raft.rules.quorum_size", lambda voter_count: 1)
    with pytest.raises(AssertionError, match=r"\.venv/bin/python -m tests\.raft\.simulate --seed 3"):
        run(3)


class LateReadsSimulation(RaftSimulation):
    """A simulation in which a follower that cannot reach the leader receives reads after convergence."""

    asked = 0

    def _let_requests_end(self) -> None:
        leader = self._leader()
        assert leader is not None
        follower = next(host for host in self._converging() if host is not leader)
        self.broken_links.add((follower.node_id, leader.node_id))
        for _ in range(3):
            self._read(follower)
        self.asked = sum(map(len, self.checker._awaited.values()))
        super()._let_requests_end()


def test_requests_after_convergence_get_time_to_complete() -> None:
    simulation = LateReadsSimulation(1)
    simulation.run()
    assert simulation.asked >= 3
    assert not simulation.checker.has_pending_requests


def test_checker_detects_request_without_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    for end in ("tick", "on_leader_unreachable"):  # a follower then waits indefinitely for the leader
        monkeypatch.setattr(reads, end, lambda core: None)
    with pytest.raises(Violation, match="have no outcome"):
        LateReadsSimulation(2).run()
