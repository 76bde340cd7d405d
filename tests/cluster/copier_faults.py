"""Faults of copiers and brokers, and the supervision of the copiers.

Each copier has its own listener on every Chronik node, advertised at a proxy, so that it can be isolated from brokers
that all others reach.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from chronik.config import Address
from chronik.testing.cluster import Cluster, ClusterNode, NodeAddresses
from chronik.testing.links import NetworkLinks
from chronik.testing.ports import HOST, ReservedPorts

from .brokers import NODES, Brokers, ChronikBrokers
from .copier import EXIT_HUNG

COPIERS = (1, 2, 3)
PROJECT = Path(__file__).parents[2]
MAIN = "MAIN"
TELL_SECONDS = 0.5
LOG_CHARACTERS_SHOWN = 8_000
COPIER_SIDE = 0
"""The number of the copier in its links to the nodes."""


class CopierCluster(Cluster):
    """A cluster with a listener for each copier."""

    def _addresses(self, ids: Iterable[int]) -> dict[int, NodeAddresses]:
        ids = list(ids)
        self._more = ReservedPorts(len(ids) * len(COPIERS) + 1)
        nowhere, *ports = (Address(HOST, port) for port in self._more.ports)
        self._bound = {
            copier: dict(zip(ids, ports[index * len(ids) :], strict=False)) for index, copier in enumerate(COPIERS)
        }
        self._doors = {copier: NetworkLinks({COPIER_SIDE: nowhere} | self._bound[copier]) for copier in COPIERS}
        return super()._addresses(ids)

    def _new_node(self, folder: Path, kafka: Address, http: Address, **config: Any) -> ClusterNode:
        node_id: int = config["node_id"]
        bound = {MAIN: kafka} | {_listener(copier): self._bound[copier][node_id] for copier in COPIERS}
        advertised = {MAIN: kafka} | {_listener(copier): self.copier_address(copier, node_id) for copier in COPIERS}
        broker = {
            "listeners": ",".join(f"{name}://{address}" for name, address in bound.items()),
            "advertised.listeners": ",".join(f"{name}://{address}" for name, address in advertised.items()),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in bound),
            "inter.broker.listener.name": MAIN,
        }
        return ClusterNode(folder, kafka, http, broker=broker, **config)

    def copier_address(self, copier: int, node_id: int) -> Address:
        """Return the address of a node for a copier."""
        return self._doors[copier].get_proxy_address(COPIER_SIDE, node_id)

    def cut_copier(self, copier: int) -> None:
        """Cut all links between a copier and the nodes, in both directions."""
        outwards = [(COPIER_SIDE, node_id) for node_id in self.nodes]
        self._doors[copier].interrupt([*outwards, *((node_id, COPIER_SIDE) for node_id in self.nodes)])

    def heal_copier(self, copier: int) -> None:
        self._doors[copier].restore()

    def close(self) -> None:
        super().close()
        for links in self._doors.values():
            links.close()
        self._more.release()


def _listener(copier: int) -> str:
    return f"COPIER{copier}"


class CopierProcesses:
    """The copier processes. `keep_up` restarts those that have exited."""

    def __init__(self, brokers: Brokers, folder: Path) -> None:
        self._brokers = brokers
        self._cluster = brokers.cluster if isinstance(brokers, ChronikBrokers) else None
        self._log = (folder / "copiers.log").open("ab")
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.restarts = 0
        self.hung = 0
        """Number of copiers that exited because librdkafka hung (`copier.HUNG_SECONDS`)."""

    def __enter__(self) -> CopierProcesses:
        for copier in COPIERS:
            self.start(copier)
        return self

    def __exit__(self, *_: object) -> None:
        for copier in COPIERS:
            self.kill(copier)
        self._log.close()

    def start(self, copier: int) -> None:
        command = [sys.executable, "-m", "tests.cluster.copier", self._bootstrap(copier), f"copier-{copier}"]
        self._processes[copier] = subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.DEVNULL, stderr=self._log)

    def kill(self, copier: int) -> None:
        self._processes[copier].kill()
        self._processes[copier].wait()

    def pause(self, copier: int) -> None:
        self._processes[copier].send_signal(signal.SIGSTOP)

    def resume(self, copier: int) -> None:
        self._processes[copier].send_signal(signal.SIGCONT)

    def cut_off(self, copier: int) -> None:
        assert isinstance(self._cluster, CopierCluster)
        self._cluster.cut_copier(copier)

    def heal(self, copier: int) -> None:
        assert isinstance(self._cluster, CopierCluster)
        self._cluster.heal_copier(copier)

    def restart_exited(self) -> None:
        for copier, process in self._processes.items():
            if process.poll() is not None:
                self.restarts += 1
                self.hung += process.returncode == EXIT_HUNG
                self.start(copier)

    def diagnose(self) -> str:
        """Return the exit codes, stack traces and last output of the copiers."""
        text = "".join(f"copier {copier}: exit code {each.poll()}\n" for copier, each in self._processes.items())
        for process in self._processes.values():
            process.send_signal(signal.SIGUSR1)
            time.sleep(TELL_SECONDS)  # one after the other, into the same file
        return text + Path(self._log.name).read_text()[-LOG_CHARACTERS_SHOWN:]

    def _bootstrap(self, copier: int) -> str:
        if not isinstance(self._cluster, CopierCluster):
            return self._brokers.bootstrap
        return ",".join(str(self._cluster.copier_address(copier, node_id)) for node_id in self._cluster.nodes)


# Faults, as context managers


Fault = Callable[[Brokers, CopierProcesses, random.Random], AbstractContextManager[str]]
"""A context manager that applies a fault and yields its description."""


@contextmanager
def broker_killed(brokers: Brokers, copiers: CopierProcesses, rng: random.Random) -> Iterator[str]:
    node = rng.choice(brokers.ids)
    brokers.kill(node)
    yield f"broker {node} killed"
    brokers.start(node)


@contextmanager
def broker_paused(brokers: Brokers, copiers: CopierProcesses, rng: random.Random) -> Iterator[str]:
    node = rng.choice(brokers.ids)
    brokers.pause(node)
    yield f"broker {node} paused"
    brokers.resume(node)


@contextmanager
def broker_cut_off(brokers: Brokers, copiers: CopierProcesses, rng: random.Random) -> Iterator[str]:
    """Isolate a broker from the others. Clients still reach it, and it does not notice immediately."""
    node = rng.choice(brokers.ids)
    brokers.cut_off(node)
    yield f"broker {node} cut off"
    brokers.heal()


@contextmanager
def copier_killed(brokers: Brokers, copiers: CopierProcesses, rng: random.Random) -> Iterator[str]:
    copier = rng.choice(COPIERS)
    copiers.kill(copier)
    copiers.start(copier)  # immediately: the new process must end the open transaction of the old one
    yield f"copier {copier} killed and restarted"


@contextmanager
def copier_paused(brokers: Brokers, copiers: CopierProcesses, rng: random.Random) -> Iterator[str]:
    """Pause a copier until it has lost its partitions and its transaction has timed out; then it continues."""
    copier = rng.choice(COPIERS)
    copiers.pause(copier)
    yield f"copier {copier} paused"
    copiers.resume(copier)


@contextmanager
def copier_cut_off(brokers: Brokers, copiers: CopierProcesses, rng: random.Random) -> Iterator[str]:
    copier = rng.choice(COPIERS)
    copiers.cut_off(copier)
    yield f"copier {copier} cut off"
    copiers.heal(copier)


@contextmanager
def two_faults(brokers: Brokers, copiers: CopierProcesses, rng: random.Random) -> Iterator[str]:
    """Apply a fault to a broker and another one to a copier."""
    with ExitStack() as stack:
        of_broker = rng.choice([fault for fault in BROKER_FAULTS if is_possible(fault, brokers)])
        of_copier = rng.choice([fault for fault in COPIER_FAULTS if is_possible(fault, brokers)])
        yield " and ".join(stack.enter_context(fault(brokers, copiers, rng)) for fault in (of_broker, of_copier))


BROKER_FAULTS: tuple[Fault, ...] = (broker_killed, broker_paused, broker_cut_off)
COPIER_FAULTS: tuple[Fault, ...] = (copier_killed, copier_paused, copier_cut_off)
FAULTS = (*BROKER_FAULTS, *COPIER_FAULTS, two_faults)


def is_possible(fault: Fault, brokers: Brokers) -> bool:
    return brokers.can_cut or fault not in (broker_cut_off, copier_cut_off)


def create_copier_cluster(folder: Path) -> CopierCluster:
    return CopierCluster(NODES, folder, links=True)
