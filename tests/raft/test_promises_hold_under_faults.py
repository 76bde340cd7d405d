"""The simulation, seed by seed. Row 1 to 3 of what the trusted systems test: see `simulation` and `checker`."""

from __future__ import annotations

import pytest

from chronik.raft import reads
from tests.long import SEED, count

from .checker import Violation
from .simulation import Simulation

pytestmark = pytest.mark.slow

SEEDS = count(50, 10_000)
PART = 25
"""Seeds per test, so that they are spread over the workers."""
FIRST = (SEED - 1) * SEEDS + 1


def run(seed: int) -> Simulation:
    simulation = Simulation(seed)
    try:
        simulation.run()
    except Exception as error:
        replay = f".venv/bin/python -m tests.raft.simulate --seed {seed}"
        raise AssertionError(f"seed {seed} breaks a promise: {error} (to replay it: {replay})") from error
    return simulation


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, PART))
def test_every_promise_holds_at_every_step_and_the_cluster_agrees_afterwards(first: int) -> None:
    simulations = [run(seed) for seed in range(first, first + PART)]
    checkers = [simulation.checker for simulation in simulations]
    assert sum(checker.last_committed for checker in checkers) > 50 * PART
    assert sum(checker.terms_led for checker in checkers) > 3 * PART
    assert sum(checker.reads_confirmed for checker in checkers) > 5 * PART
    assert sum(checker.memberships_committed for checker in checkers) > PART
    assert sum(checker.snapshots_installed for checker in checkers) > PART // 2


def test_the_same_seed_tells_the_same_story() -> None:
    first, second, other = run(FIRST), run(FIRST), run(FIRST + 1)
    assert first.steps == second.steps > 500
    assert first.trace_hash() == second.trace_hash() != other.trace_hash()


def test_a_seed_that_fails_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.raft.rules.quorum_size", lambda voter_count: 1)
    with pytest.raises(AssertionError, match=r"\.venv/bin/python -m tests\.raft\.simulate --seed 3"):
        run(3)


class AskedAtTheLastMoment(Simulation):
    """When all agree, a follower whose words do not reach the leader is asked for reads."""

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


def test_what_is_asked_when_all_agree_already_is_given_the_time_to_end() -> None:
    simulation = AskedAtTheLastMoment(1)
    simulation.run()
    assert simulation.asked >= 3
    assert not simulation.checker.is_awaiting


def test_a_request_that_never_ends_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for end in ("tick", "on_leader_unreachable"):  # a follower waits for its leader's answer for ever
        monkeypatch.setattr(reads, end, lambda core: None)
    with pytest.raises(Violation, match="never ended"):
        AskedAtTheLastMoment(2).run()
