"""How many small commands three nodes agree on per second: their stores alone, in three processes, without the Kafka
protocol before them. Each command is an entry of the log, and Raft batches what is under way at the same time; or many
of them are one entry, as the group coordinator does it."""

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

from bench.cluster.figures import Figure, Plan
from bench.cluster.nodes import NODES
from bench.servers import ROOT
from chronik.bench.errors import BenchFailed
from chronik.testing.ports import ReservedPorts

COMMANDS_PER_SECOND_LEAST: Final = 10_000
IN_FLIGHT: Final = 2000
BATCH: Final = 100
BATCHES_IN_FLIGHT: Final = 10
WARM_UP_SECONDS: Final = 1.0
ELECTION_SECONDS_MAX: Final = 30.0
POLL_SECONDS: Final = 0.05


def measure_commands(plan: Plan) -> list[Figure]:
    with _three_stores(plan.folder) as stores:
        leader = stores[_leader(stores)]
        follower = next(store for store in stores.values() if store is not leader)
        leader.ask("found")
        alone = {"in_flight": IN_FLIGHT, "seconds": plan.seconds, "batch": 1}
        batched = {"in_flight": BATCHES_IN_FLIGHT, "seconds": plan.seconds, "batch": BATCH}
        leader.ask("load", **alone | {"seconds": WARM_UP_SECONDS})
        at_leader, forwarded, in_batches = [], [], []
        for _ in range(plan.rounds):
            at_leader.append(leader.ask("load", **alone))
            forwarded.append(follower.ask("load", **alone))
            in_batches.append(leader.ask("load", **batched))
    return [
        Figure(f"commands/s, {IN_FLIGHT:,} under way at the leader", at_leader, at_least=COMMANDS_PER_SECOND_LEAST),
        Figure("commands/s, forwarded by a follower", forwarded),
        Figure(f"commands/s, {BATCH} of them in one entry", in_batches, at_least=COMMANDS_PER_SECOND_LEAST),
    ]


class _Store:
    def __init__(self, folder: Path, node_id: int, ports: dict[int, int]) -> None:
        self.node_id = node_id
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.cluster.store_process"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._send({"folder": str(folder), "node_id": node_id, "ports": ports})

    def ask(self, command: str, **arguments: Any) -> Any:
        self._send({"command": command, **arguments})
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise BenchFailed(f"store {self.node_id} has ended")
        return json.loads(answer)

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()  # it has nothing to lose
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
                home = Path(folder) / str(node_id)
                home.mkdir()
                stores[node_id] = _Store(home, node_id, ports)
            yield stores
        finally:
            for store in stores.values():
                store.end()
            reserved.release()


def _leader(stores: dict[int, _Store]) -> int:
    deadline = time.monotonic() + ELECTION_SECONDS_MAX
    while time.monotonic() < deadline:
        named = {store.ask("leader") for store in stores.values()}
        if len(named) == 1 and (leader := named.pop()) in stores:
            return int(leader)
        time.sleep(POLL_SECONDS)
    raise BenchFailed(f"three stores did not agree on a leader within {ELECTION_SECONDS_MAX:g} s")
