"""Replay seeds of the membership simulation: `.venv/bin/python -m tests.controller.simulate --seed 7 [--count 1]`."""

from __future__ import annotations

import argparse
import time

from tests.controller.membership_simulation import RaftMembershipSimulation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    arguments = parser.parse_args()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        begun = time.perf_counter()
        simulation = RaftMembershipSimulation(seed)
        simulation.run()
        print(
            f"seed {seed}: {simulation.steps} steps, {time.perf_counter() - begun:.2f} s, {simulation.counts()}, "
            f"{simulation.checker.summary()}, trace {simulation.trace_hash()}"
        )


if __name__ == "__main__":
    main()
