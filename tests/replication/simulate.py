"""Replay seeds of the simulation: `.venv/bin/python -m tests.replication.simulate --seed 7 [--count 1] [--growing]`."""

from __future__ import annotations

import argparse
import time

from tests.replication.membership_simulation import ReplicationMembershipSimulation
from tests.replication.simulation import ReplicationSimulation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--growing", action="store_true", help="add and remove nodes")
    arguments = parser.parse_args()
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        begun = time.perf_counter()
        world = ReplicationMembershipSimulation(seed) if arguments.growing else ReplicationSimulation(seed)
        world.run()
        checker = world.checker
        print(
            f"seed {seed}: {len(world.hosts)} nodes, {world.loop.steps} steps, {world.loop.time():.1f} s of virtual"
            f" time, {time.perf_counter() - begun:.2f} s, {world.faults} faults, {len(world.consensus.log)} commands,"
            f" {world.network.carried} calls, {checker.acknowledged} acknowledged, {checker.consumed} consumed,"
            f" trace {world.trace_hash()}"
        )


if __name__ == "__main__":
    main()
