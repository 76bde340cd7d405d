"""The execution of one attack: start a node or cluster and a probe, run the attack, and collect the figures.

The figures include memory, disk and log usage of the nodes' processes, and brokers that were fenced.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient as Client
from chronik.client.errors import ClientError
from chronik.client.records import TopicPartition
from chronik.config import Address
from chronik.console.http_client import NodeRequestError
from chronik.listeners import PLAINTEXT
from chronik.testing.cluster import ClusterNode
from chronik.testing.control import BrokerFailed
from chronik.testing.ports import HOST, ReservedPorts
from tests.abuse import probe
from tests.abuse.attack import CLUSTER, SINGLE_NODE, Attack, AttackTarget
from tests.abuse.authentication.attacked_listener import (
    AttackCluster,
    AttackedListener,
    NodeWithSecuredListener,
    attacked_address,
    disable_request_recording,
)
from tests.abuse.budget import AttackFigures, NodeMemory
from tests.abuse.probe_process import ProbeProcess, ProbeResults

SHOWN_CHARACTERS: Final = 300
"""Characters shown of each end of a long log line."""

FAULT_LINE: Final = re.compile(r"^(?:\S+ )*(?:ERROR|CRITICAL) .*|^[ |]*Traceback .*", re.MULTILINE)
"""Log lines that indicate a fault of the node, not of its clients."""

RESET_PEAK: Final = "5"
BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`."""

POLL_SECONDS: Final = 0.2
ONLINE: Final = "online"

PROBE_TOPIC: Final = "probe"
QUIET_SECONDS: Final = 2.0
WATCH_SECONDS_MIN: Final = 5.0
"""Minimum measuring time: a hundred requests for the p99, and time for delayed effects of the attack."""

QUICK_SECONDS: Final = 1.0
RECOVERY_SECONDS_MAX: Final = 60.0
LOSS_GROUPS_MAX: Final = 3


class MeasuredProcess:
    """A node's process, measured relative to the creation of this object."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node
        self.pid = node.pid
        Path(f"/proc/{self.pid}/clear_refs").write_text(RESET_PEAK)
        self._memory_before = self._status_bytes("VmRSS")
        self._disk_before = self._disk_bytes()
        self._log_before = len(node.log)

    def memory(self) -> NodeMemory:
        """Return the memory usage. A process that has exited, which is reported separately, counts as not grown."""
        if not self._is_alive():
            return NodeMemory(self._memory_before, 0, 0)
        return NodeMemory(self._memory_before, self._status_bytes("VmRSS"), self._status_bytes("VmHWM"))

    def disk_growth(self) -> int:
        """Return the growth of the data directory in bytes."""
        return max(0, self._disk_bytes() - self._disk_before)

    def _disk_bytes(self) -> int:
        """Return the allocated size of all data files. Files may be deleted concurrently."""
        total = 0
        for directory, _, names in os.walk(self.node.data_dir):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    total += os.stat(os.path.join(directory, name)).st_blocks * BLOCK_BYTES
        return total

    def new_log_output(self) -> str:
        """Return the log output since the creation of this object."""
        return self.node.log[self._log_before :]

    def problems(self) -> list[str]:
        """Return the problems of the process."""
        if not self._is_alive():
            return [f"{self.node} was restarted or has exited"]
        return [f"{self.node} logged: {shorten(line)}" for line in FAULT_LINE.findall(self.new_log_output())[:3]]

    def _is_alive(self) -> bool:
        return self.node.is_running and self.node.pid == self.pid

    def _status_bytes(self, field: str) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (kilobytes,) = (int(line.split()[1]) for line in lines if line.startswith(field + ":"))
        return kilobytes * 1024


def shorten(line: str) -> str:
    """Return the line without its middle if it is long; an escaped traceback ends with the error."""
    return line if len(line) <= 2 * SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]} … {line[-SHOWN_CHARACTERS:]}"


class FencingMonitor:
    """A thread that polls the status of every node; a standalone node is not polled."""

    def __init__(self, target: AttackTarget) -> None:
        self._target = target
        self._stop = threading.Event()
        self._offline: dict[int, str] = {}
        self._threads = [
            threading.Thread(target=self._poll, args=(node.node_id,))
            for node in (target.nodes if target.cluster is not None else ())
        ]

    def __enter__(self) -> FencingMonitor:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def findings(self) -> list[str]:
        return [f"broker {broker} was fenced (status {status})" for broker, status in sorted(self._offline.items())]

    def _poll(self, node_id: int) -> None:
        assert self._target.cluster is not None
        while not self._stop.wait(POLL_SECONDS):
            try:
                brokers = self._target.cluster.status(node_id)["brokers"]
            except NodeRequestError:  # the attack may be on the HTTP port
                continue
            for broker in brokers:
                if broker["status"] != ONLINE:
                    self._offline.setdefault(broker["id"], broker["status"])


def run_attack(attack: Attack, kind: str, seed: int, *, few: bool = False) -> AttackFigures:
    """Run an attack against a newly started target and return its figures."""
    with tempfile.TemporaryDirectory(prefix="chronik-abuse-") as home, start_target(attack, kind, Path(home)) as target:
        target.random = random.Random(f"{seed} {attack.name} {kind}")
        target.use_small_counts = few
        attack.prepare(target)
        return _measure(attack, target, Path(home))


@contextmanager
def start_target(attack: Attack, kind: str, home: Path) -> Iterator[AttackTarget]:
    listener = (
        AttackedListener(attack.protocol, attack.mechanism, home / "listener") if attack.protocol != PLAINTEXT else None
    )
    new_node = ClusterNode if listener is None else partial(NodeWithSecuredListener, listener)
    with (_cluster if kind == CLUSTER else _node)(attack, new_node, home) as target:
        if listener is not None:
            listener.wait_until_ready([node for node in target.nodes if isinstance(node, NodeWithSecuredListener)])
        target.attacked_listener = listener
        yield target


@contextmanager
def _cluster(attack: Attack, new_node: Callable[..., ClusterNode], home: Path) -> Iterator[AttackTarget]:
    with AttackCluster(new_node, home, **attack.config) as cluster:
        nodes = list(cluster.nodes.values())
        leader = cluster.nodes[_probe_leader(cluster.bootstrap, copies=3)]
        yield AttackTarget(CLUSTER, nodes, leader, PROBE_TOPIC, cluster.raft_address(leader.node_id), cluster)


@contextmanager
def _node(attack: Attack, new_node: Callable[..., ClusterNode], home: Path) -> Iterator[AttackTarget]:
    reserved = ReservedPorts(2)
    kafka, http = (Address(HOST, port) for port in reserved.ports)
    node = disable_request_recording(new_node(home / "node", kafka, http, node_id=1, **attack.config))
    try:
        node.start()
        _probe_leader(node.bootstrap, copies=1)
        yield AttackTarget(SINGLE_NODE, [node], node, PROBE_TOPIC)
    finally:
        node.kill()
        reserved.release()
        if isinstance(node, NodeWithSecuredListener):
            node.release()


def _probe_leader(bootstrap: str, copies: int) -> int:
    with Client(bootstrap, client_id="abuse") as client:
        create_topics(client, [NewTopic(PROBE_TOPIC, 1, copies)])
        return client.retry(lambda: client.leader_id(TopicPartition(PROBE_TOPIC, 0)))


def _measure(attack: Attack, target: AttackTarget, home: Path) -> AttackFigures:
    target.meter.total = target.meter.largest = 0
    term = _term(target)
    with ProbeProcess(target, home, attack.probe) as watch, FencingMonitor(target) as monitor:
        quiet_started = time.monotonic()
        time.sleep(QUICK_SECONDS if target.use_small_counts else QUIET_SECONDS)
        processes = [MeasuredProcess(node) for node in target.nodes]
        started = time.monotonic()
        ailments = _run_strike(attack, target)
        remaining = started + (QUICK_SECONDS if target.use_small_counts else WATCH_SECONDS_MIN) - time.monotonic()
        time.sleep(max(0.0, remaining))
        ended = time.monotonic()
        target.close_kept()
        memory = [process.memory() for process in processes]
        disk = max(process.disk_growth() for process in processes)
    seen = ProbeResults.between(watch.requests(), started, ended)
    processes = [process for process in processes if process.node.node_id not in target.restarted]
    excused_ports = {attacked_address(node).port for node in target.nodes if node.node_id in target.restarted}
    ailments += group_losses(seen.losses(excused_ports))
    for process in processes:
        ailments += process.problems()
    ailments += _health_problems(target)
    if target.cluster is not None and not target.restarted:
        if (now := _term(target)) != term:
            ailments.append(f"the Raft leader was deposed: the term went from {term} to {now}")
        ailments += monitor.findings()
    ailments += _lost_records(watch, target)
    return AttackFigures(
        sent_bytes=target.meter.total,
        request_bytes=target.meter.largest,
        blocked_ms=seen.blocked_ms(),
        blocked_raw_ms=seen.blocked_raw_ms(),
        memory_bytes=max(each.growth for each in memory),
        log_bytes=max(len(process.new_log_output()) for process in processes),
        before_p99_ms=ProbeResults.between(watch.requests(), quiet_started, started).p99_raw_ms(),
        probe_p99_ms=seen.p99_ms(),
        probe_p99_raw_ms=seen.p99_raw_ms(),
        probe_longest_ms=seen.longest_ms(),
        probe_records=len(seen.of_kind(probe.PRODUCE)),
        pings=len(seen.of_kind(probe.PING)),
        arrival_p99_ms=seen.p99_ms(probe.NEW_CONNECTION) if target.attacked_listener else None,
        arrival_p99_raw_ms=seen.p99_raw_ms(probe.NEW_CONNECTION) if target.attacked_listener else None,
        arrivals=len(seen.of_kind(probe.NEW_CONNECTION)),
        honest=[seen.latencies(kind) for kind in _honest_kinds(attack)],
        memory=memory,
        disk_bytes=disk,
        responses=target.responses,
        problems=ailments,
    )


def group_losses(losses: list[str]) -> list[str]:
    """Group losses that differ only in numbers, and return the first of each group with its count."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for loss in losses:
        kind = re.sub(r"\d+", "N", loss)
        first.setdefault(kind, loss)
        counts[kind] += 1
    return [f"lost {first[kind]} ({count} times)" for kind, count in counts.most_common(LOSS_GROUPS_MAX)]


def _honest_kinds(attack: Attack) -> list[str]:
    """Return the kinds of honest requests to report for a flood; other attacks report the probe's only."""
    if not attack.probe.fetches:
        return []
    return [probe.PRODUCE, probe.FETCH, *([probe.HTTP] if attack.probe.http else ())]


def _term(target: AttackTarget) -> int | None:
    """Return the highest Raft term of the cluster, or None for a standalone node."""
    if target.cluster is None:
        return None
    return max(int(target.cluster.status(node.node_id)["term"]) for node in target.nodes)


def _run_strike(attack: Attack, target: AttackTarget) -> list[str]:
    try:
        attack.strike(target)
    except Exception as error:  # an interrupted attack proves nothing
        return [f"the attack was interrupted: {type(error).__name__}: {error}"]
    return []


def _health_problems(target: AttackTarget) -> list[str]:
    """Return the problems of nodes that do not respond, or that do not see the other nodes of the cluster."""
    try:
        if target.cluster is not None:
            target.cluster.wait_until_ready(RECOVERY_SECONDS_MAX)
        else:
            target.victim.listed_brokers()
    except (ClientError, BrokerFailed) as error:
        return [f"not healthy after the attack: {error}"]
    return []


def _lost_records(watch: ProbeProcess, target: AttackTarget) -> list[str]:
    """Return the acknowledged records of the probe that cannot be read at their offsets."""
    acknowledged_trips = [trip.details for trip in watch.requests() if trip.kind == probe.PRODUCE]
    try:
        read = {record.offset: record.value for record in target.victim.records(target.probe_topic)}
    except (ClientError, BrokerFailed) as error:
        return [f"the probe's records cannot be read: {error}"]
    lost = missing_records({each["offset"]: each["number"] for each in acknowledged_trips}, read)
    return [f"{len(lost)} acknowledged records are lost, the first at offset {min(lost)}"] if lost else []


def missing_records(acknowledged: dict[int, int], read: dict[int, bytes | None]) -> list[int]:
    """Return the offsets that hold no record, or another one than was acknowledged."""
    return [offset for offset, number in acknowledged.items() if read.get(offset) != probe.record_value(number)]
