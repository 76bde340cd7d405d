"""Simulated transactions, seed by seed: `simulation.world` injects the faults, and `checkers` has the invariants."""

from __future__ import annotations

from collections import Counter

import pytest

from chronik.log.partition_transactions import PartitionTransactions
from tests.run_size import SEED, sized

from .simulate import SHOWN_COUNTS, format_counts
from .simulation.world import TransactionWorld

pytestmark = pytest.mark.slow

SEEDS = sized(40, 10_000)
PART = sized(10, 25)
"""Seeds per test, so that they are distributed over the workers."""
FIRST = (SEED - 1) * SEEDS + 1
RARE = ("slept",)
"""Events that do not happen in every few seeds."""


def run(seed: int) -> TransactionWorld:
    world = TransactionWorld(seed)
    try:
        world.run()
    except Exception as error:
        replay = f".venv/bin/python -m tests.transactions.simulate --seed {seed}"
        raise AssertionError(f"seed {seed} violates a guarantee: {error!r} (to replay it: {replay})") from error
    return world


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, PART))
def test_random_faults_violate_no_transaction_guarantee(first: int) -> None:
    worlds = [run(seed) for seed in range(first, first + PART)]
    counts = sum((world.counts for world in worlds), Counter[str]())
    faults, late = sum(world.faults for world in worlds), sum(len(world.verdict.v1_violations) for world in worlds)
    print(
        f"seeds {first} to {first + PART - 1}: {faults} faults; {format_counts(counts)}; {late} violations by late "
        "v1 requests"
    )
    assert faults > 5 * PART
    assert counts["committed"] > 5 * PART
    assert min(counts[name] for name in SHOWN_COUNTS if name not in RARE) > PART // 2, counts


def test_same_seed_reproduces_same_run() -> None:
    first, second, other = run(FIRST), run(FIRST), run(FIRST + 1)
    assert first.loop.steps == second.loop.steps > 1000
    assert first.events == second.events
    assert first.trace_hash() == second.trace_hash() != other.trace_hash()


def test_failing_seed_prints_replay_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionTransactions, "first_unstable_offset", lambda *_: None)
    with pytest.raises(AssertionError, match=r"\.venv/bin/python -m tests\.transactions\.simulate --seed 1\)"):
        run(1)
