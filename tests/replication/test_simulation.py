"""The replication simulation under faults, for many seeds: see `world` and `checker`."""

from __future__ import annotations

import pytest

from chronik.broker import recent_batches
from tests.replication.simulation import ReplicationSimulation
from tests.run_size import SEED, sized

pytestmark = pytest.mark.slow

SEEDS = sized(50, 10_000)
PART = 25
"""Seeds per test, so that pytest-xdist can distribute them."""
FIRST = (SEED - 1) * SEEDS + 1
SEEDS_IN_CHUNKS = sized(10, 25)


def run(seed: int) -> ReplicationSimulation:
    world = ReplicationSimulation(seed)
    try:
        world.run()
    except Exception as error:
        replay = f".venv/bin/python -m tests.replication.simulate --seed {seed}"
        raise AssertionError(f"seed {seed} violates a guarantee: {error!r} (to replay it: {replay})") from error
    return world


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, PART))
def test_guarantees_hold_under_faults_and_replicas_resync(first: int) -> None:
    worlds = [run(seed) for seed in range(first, first + PART)]
    assert sum(world.faults for world in worlds) > 8 * PART
    assert sum(world.checker.acknowledged for world in worlds) > 30 * PART
    assert sum(world.checker.consumed for world in worlds) > 20 * PART
    assert sum(world.checker.highest_epoch for world in worlds) > 2 * PART
    assert sum(len(world.consensus.log) for world in worlds) > 40 * PART


def test_guarantees_hold_with_small_chunks_and_little_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several = 0
    read = recent_batches.RecentBatches.read

    def counted(batches: recent_batches.RecentBatches, offset: int, bytes_max: int) -> list[memoryview]:
        nonlocal several
        pieces = read(batches, offset, bytes_max)
        several += len(pieces) > 1
        return pieces

    monkeypatch.setattr("chronik.broker.recent_batches.RecentBatches.read", counted)
    monkeypatch.setattr("chronik.broker.recent_batches.ZERO_COPY_BYTES_MIN", 1)
    monkeypatch.setattr(recent_batches.RecentBatchBudget.__init__, "__defaults__", (2000,))
    monkeypatch.setattr("chronik.replication.fetcher.WRITTEN_BYTES_PER_ITERATION", 100)
    worlds = [run(seed) for seed in range(FIRST, FIRST + SEEDS_IN_CHUNKS)]
    assert sum(world.checker.acknowledged for world in worlds) > 30 * SEEDS_IN_CHUNKS
    assert several > SEEDS_IN_CHUNKS


def test_same_seed_produces_same_trace() -> None:
    first, second, other = run(FIRST), run(FIRST), run(FIRST + 1)
    assert first.loop.steps == second.loop.steps > 1000
    assert first.trace_hash() == second.trace_hash() != other.trace_hash()


def test_failing_seed_reports_replay_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronik.broker.isr_state.IsrState.high_watermark", lambda leading, own_end: own_end)
    with pytest.raises(AssertionError, match=r"\.venv/bin/python -m tests\.replication\.simulate --seed 1\)"):
        run(1)
