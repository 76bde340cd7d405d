"""Replay simulated transaction seeds: `.venv/bin/python -m tests.transactions.simulate --seed 7 [--count 1]`."""

from __future__ import annotations

import argparse
import time
from collections import Counter

from .simulation.world import TransactionWorld

SHOWN_COUNTS = (
    "begun",
    "committed",
    "aborted",
    "broken off",
    "fenced",
    "timed out",
    "gave up",
    "instances",
    "slept",
    "read",
)


def format_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in SHOWN_COUNTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    arguments = parser.parse_args()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        begun = time.perf_counter()
        world = TransactionWorld(seed)
        world.run()
        print(
            f"seed {seed}: {len(world.hosts)} nodes, {world.loop.steps} steps, {world.loop.time():.1f} s of virtual"
            f" time, {time.perf_counter() - begun:.2f} s, {world.faults} faults, {len(world.consensus.log)} commands;"
            f" transactions: {format_counts(world.counts)}; {len(world.verdict.v1_violations)} violations by late "
            "v1 requests;"
            f" trace {world.trace_hash()}"
        )


if __name__ == "__main__":
    main()
