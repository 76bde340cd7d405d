"""Metadata commands per second of three nodes: their stores alone, in three processes, without the Kafka protocol.

Each command is either an entry of its own, where Raft batches concurrent entries, or many commands share one entry, as
the group coordinator does it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.cluster.figures import ClusterBenchmarkPlan, Figure
from bench.cluster.nodes import NODES
from bench.servers import ROOT
from chronik.bench.errors import BenchmarkError
from chronik.testing.ports import ReservedPorts

COMMANDS_PER_SECOND_LEAST: Final = 10_000
IN_FLIGHT: Final = 2000
BATCH: Final = 100
BATCHES_IN_FLIGHT: Final = 10
WARM_UP_SECONDS: Final = 1.0
ELECTION_SECONDS_MAX: Final = 30.0
POLL_SECONDS: Final = 0.05


def measure_commands(plan: ClusterBenchmarkPlan) -> list[Figure]:
    with _three_stores(plan.directory) as stores:
        leader = stores[_leader(stores)]
        follower = next(store for store in stores.values() if store is not leader)
        leader.request("found")
        single = {"in_flight": IN_FLIGHT, "seconds": plan.seconds, "batch": 1}
        batched = {"in_flight": BATCHES_IN_FLIGHT, "seconds": plan.seconds, "batch": BATCH}
        leader.request("load", **single | {"seconds": WARM_UP_SECONDS})
        at_leader, forwarded, in_batches = [], [], []
        for _ in range(plan.rounds):
            at_leader.append(leader.request("load", **single))
            forwarded.append(follower.request("load", **single))
            in_batches.append(leader.request("load", **batched))
    return [
        Figure(f"commands/s, {IN_FLIGHT:,} in flight at the leader", at_leader, at_least=COMMANDS_PER_SECOND_LEAST),
        Figure("commands/s, forwarded by a follower", forwarded),
        Figure(f"commands/s, {BATCH} of them in one entry", in_batches, at_least=COMMANDS_PER_SECOND_LEAST),
    ]


class _Store:
    """A store process, controlled by JSON lines."""

    def __init__(self, folder: Path, node_id: int, ports: dict[int, int]) -> None:
        self.node_id = node_id
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.cluster.stores"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._send({"directory": str(folder), "node_id": node_id, "ports": ports})

    def request(self, command: str, **arguments: Any) -> Any:
        self._send({"command": command, **arguments})
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchmarkError(f"store {self.node_id} has exited")
        return json.loads(line)

    def stop(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()  # its data is not needed
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()


@contextmanager
def _three_stores(parent: Path) -> Iterator[dict[int, _Store]]:
    reserved = ReservedPorts(NODES)
    ports = dict(enumerate(reserved.ports, start=1))
    stores: dict[int, _Store] = {}
    with tempfile.TemporaryDirectory(prefix="stores-", dir=parent) as folder:
        try:
            for node_id in ports:
                directory = Path(folder) / str(node_id)
                directory.mkdir()
                stores[node_id] = _Store(directory, node_id, ports)
            yield stores
        finally:
            for store in stores.values():
                store.stop()
            reserved.release()


def _leader(stores: dict[int, _Store]) -> int:
    deadline = time.monotonic() + ELECTION_SECONDS_MAX
    while time.monotonic() < deadline:
        reported_leaders = {store.request("leader") for store in stores.values()}
        if len(reported_leaders) == 1 and (leader := reported_leaders.pop()) in stores:
            return int(leader)
        time.sleep(POLL_SECONDS)
    raise BenchmarkError(f"the three stores elected no leader within {ELECTION_SECONDS_MAX:g} s")
