"""Replay seeds of the simulation: `.venv/bin/python -m tests.raft.simulate --seed 7 [--count 1]`."""

from __future__ import annotations

import argparse
import time

from tests.raft.simulation import RaftSimulation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    arguments = parser.parse_args()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        started = time.perf_counter()
        simulation = RaftSimulation(seed)
        simulation.run()
        checker = simulation.checker
        print(
            f"seed {seed}: {simulation.steps} steps, {simulation.now_ms / 1000:.1f} s of virtual time, "
            f"{time.perf_counter() - started:.2f} s, {checker.summary()}, trace {simulation.trace_hash()}"
        )


if __name__ == "__main__":
    main()
