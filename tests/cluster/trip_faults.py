"""Faults of the nodes, the network and the commands of a trip, determined by a seed, one at a time."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from subprocess import Popen
from typing import Protocol

from chronik.console.http_client import NodeRequestError
from chronik.testing.cluster import ROLE_LEADER, Cluster, ClusterNode
from chronik.testing.control import BrokerFailed

REST_SECONDS = (0.2, 1.5)
FAULT_SECONDS = (0.3, 4.0)
BACK_SECONDS_MAX = 30.0
"""Time limit for an affected node to recover, unless it has just been removed."""

CHANCE_OF_SUBJECT = 0.4
"""Probability that the fault affects the node of the current command."""
CHANCE_OF_LEADER = 0.5
"""Otherwise, the probability that it affects the Raft leader."""


class TripView(Protocol):
    cluster: Cluster
    node_lock: threading.RLock
    command: Popen[bytes] | None

    @property
    def subject(self) -> int | None: ...


class TripFaults:
    """Injects faults during a trip."""

    KINDS = ("kill", "kill", "pause", "cut off", "deaf", "mute", "link", "stop command")

    def __init__(self, trip: TripView, randomness: random.Random, say: Callable[[str], None]) -> None:
        self._trip, self._random, self._say = trip, randomness, say
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trouble")
        self.counts: Counter[str] = Counter()
        self._failed: list[BaseException] = []

    @contextmanager
    def running(self, is_wanted: bool) -> Iterator[None]:
        if not is_wanted:
            yield
            return
        self._thread.start()
        try:
            yield
        finally:
            self._ending.set()
            self._thread.join()
        if self._failed:
            raise self._failed[0]

    def _run(self) -> None:
        try:
            while not self._ending.wait(self._random.uniform(*REST_SECONDS)):
                with self._trip.node_lock:
                    self._do(self._random.choice(self.KINDS))
        except BaseException as failure:
            self._failed.append(failure)

    def _do(self, kind: str) -> None:
        seconds = self._random.uniform(*FAULT_SECONDS)
        if kind == "stop command":
            self._stop_command()
            return
        victim = self._victim()
        if victim is None:
            return
        self._say(f"  {kind} of node {victim.node_id} for {seconds:.1f} s")
        self.counts[kind] += 1
        match kind:
            case "kill":
                victim.kill()
                self._ending.wait(seconds)
                victim.start()
            case "pause":
                victim.pause()
                self._ending.wait(seconds)
                victim.resume()
            case _:
                self._cut(kind, victim.node_id)
                self._ending.wait(seconds)
                self._trip.cluster.restore_links()
        self._wait_until_back(victim)

    def _cut(self, kind: str, node_id: int) -> None:
        cluster = self._trip.cluster
        others = [each for each in cluster.nodes if each != node_id]
        match kind:
            case "cut off":
                cluster.isolate(node_id)
            case "deaf":
                for other in others:
                    cluster.interrupt_link(other, node_id)
            case "mute":
                for other in others:
                    cluster.interrupt_link(node_id, other)
            case "link":
                other = self._random.choice(others)
                cluster.interrupt_link(node_id, other)
                cluster.interrupt_link(other, node_id)

    def _victim(self) -> ClusterNode | None:
        nodes = {each.node_id: each for each in self._trip.cluster.live_nodes}
        chances = self._random.random(), self._random.random(), self._random.choice(sorted(nodes))
        subject, leader = self._trip.subject, self._leader(nodes)
        if chances[0] < CHANCE_OF_SUBJECT and subject in nodes:
            return nodes[subject]
        if chances[1] < CHANCE_OF_LEADER and leader is not None:
            return leader
        return nodes[chances[2]]

    def _leader(self, nodes: dict[int, ClusterNode]) -> ClusterNode | None:
        for node in nodes.values():
            with suppress(NodeRequestError):
                if node.status()["role"] == ROLE_LEADER:
                    return node
        return None

    def _stop_command(self) -> None:
        command = self._trip.command
        if command is not None and command.poll() is None:
            self._say("  the command is killed")
            self.counts["stop command"] += 1
            command.kill()

    def _wait_until_back(self, victim: ClusterNode) -> None:
        """Wait for the node, so that no other one is affected before."""
        deadline = time.monotonic() + BACK_SECONDS_MAX
        while time.monotonic() < deadline:
            with suppress(NodeRequestError, BrokerFailed):
                if victim.not_ready_reason() is None:
                    return
            if self._is_out(victim):
                return
            time.sleep(0.05)
        self._say(f"  node {victim.node_id} is not ready after {BACK_SECONDS_MAX:g} s")

    def _is_out(self, victim: ClusterNode) -> bool:
        """Return whether the other nodes do not count on the node: it was removed or is not admitted yet."""
        others = [node for node in self._trip.cluster.live_nodes if node is not victim]
        for node in others:
            with suppress(NodeRequestError):
                return victim.node_id not in [member["id"] for member in node.status()["members"]]
        return False
