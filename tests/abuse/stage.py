"""The execution of one attack: start a node or cluster and a probe, run the attack, and collect the figures."""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import Cluster as Client
from chronik.client.errors import ClientError
from chronik.client.records import TopicPartition
from chronik.config import Address
from chronik.listeners import PLAINTEXT
from chronik.testing.cluster import ClusterNode
from chronik.testing.control import BrokerFailed
from chronik.testing.ports import HOST, ReservedPorts
from tests.abuse import probe
from tests.abuse.attack import CLUSTER, NODE, Attack, Target
from tests.abuse.budget import Figures
from tests.abuse.doors.door import Door, GuardedNode, StageCluster, as_users_have_it, entrance
from tests.abuse.fencing import FencingMonitor
from tests.abuse.processes import Process
from tests.abuse.watching import Seen, Watch

PROBE_TOPIC: Final = "probe"
QUIET_SECONDS: Final = 2.0
WATCH_SECONDS_MIN: Final = 5.0
"""Minimum measuring time: a hundred requests for the p99, and time for delayed effects of the attack."""

QUICK_SECONDS: Final = 1.0
AFTERWARDS_SECONDS_MAX: Final = 60.0
KINDS_OF_LOSSES_MAX: Final = 3


def run(attack: Attack, kind: str, seed: int, *, few: bool = False) -> Figures:
    """Run an attack against a newly started target and return its figures."""
    with tempfile.TemporaryDirectory(prefix="chronik-abuse-") as home, raised(attack, kind, Path(home)) as target:
        target.random = random.Random(f"{seed} {attack.name} {kind}")
        target.few = few
        attack.prepare(target)
        return _measure(attack, target, Path(home))


@contextmanager
def raised(attack: Attack, kind: str, home: Path) -> Iterator[Target]:
    door = Door(attack.protocol, attack.mechanism, home / "door") if attack.protocol != PLAINTEXT else None
    new_node = ClusterNode if door is None else partial(GuardedNode, door)
    with (_cluster if kind == CLUSTER else _node)(attack, new_node, home) as target:
        if door is not None:
            door.open([node for node in target.nodes if isinstance(node, GuardedNode)])
        target.door = door
        yield target


@contextmanager
def _cluster(attack: Attack, new_node: Callable[..., ClusterNode], home: Path) -> Iterator[Target]:
    with StageCluster(new_node, home, **attack.config) as cluster:
        nodes = list(cluster.nodes.values())
        leader = cluster.nodes[_probe_leader(cluster.bootstrap, copies=3)]
        yield Target(CLUSTER, nodes, leader, PROBE_TOPIC, cluster.raft_address(leader.node_id), cluster)


@contextmanager
def _node(attack: Attack, new_node: Callable[..., ClusterNode], home: Path) -> Iterator[Target]:
    reserved = ReservedPorts(2)
    kafka, http = (Address(HOST, port) for port in reserved.ports)
    node = as_users_have_it(new_node(home / "node", kafka, http, node_id=1, **attack.config))
    try:
        node.start()
        _probe_leader(node.bootstrap, copies=1)
        yield Target(NODE, [node], node, PROBE_TOPIC)
    finally:
        node.kill()
        reserved.release()
        if isinstance(node, GuardedNode):
            node.release()


def _probe_leader(bootstrap: str, copies: int) -> int:
    with Client(bootstrap, client_id="abuse") as client:
        create_topics(client, [NewTopic(PROBE_TOPIC, 1, copies)])
        return client.retrying(lambda: client.leader_id(TopicPartition(PROBE_TOPIC, 0)))


def _measure(attack: Attack, target: Target, home: Path) -> Figures:
    target.meter.total = target.meter.largest = 0
    term = _term(target)
    with Watch(target, home, attack.probe) as watch, FencingMonitor(target) as monitor:
        quiet_started = time.monotonic()
        time.sleep(QUICK_SECONDS if target.few else QUIET_SECONDS)
        processes = [Process(node) for node in target.nodes]
        started = time.monotonic()
        ailments = _run_strike(attack, target)
        remaining = started + (QUICK_SECONDS if target.few else WATCH_SECONDS_MIN) - time.monotonic()
        time.sleep(max(0.0, remaining))
        ended = time.monotonic()
        target.let_go()
        memory = [process.memory() for process in processes]
        disk = max(process.disk_growth() for process in processes)
    seen = Seen.between(watch.trips(), started, ended)
    processes = [process for process in processes if process.node.node_id not in target.restarted]
    excused_ports = {entrance(node).port for node in target.nodes if node.node_id in target.restarted}
    ailments += grouped_losses(seen.losses(excused_ports))
    for process in processes:
        ailments += process.ailments()
    ailments += _health_problems(target)
    if target.cluster is not None and not target.restarted:
        if (now := _term(target)) != term:
            ailments.append(f"the Raft leader was deposed: the term went from {term} to {now}")
        ailments += monitor.findings()
    ailments += _lost_records(watch, target)
    return Figures(
        sent_bytes=target.meter.total,
        request_bytes=target.meter.largest,
        held_ms=seen.held_ms(),
        held_raw_ms=seen.held_raw_ms(),
        memory_bytes=max(each.growth for each in memory),
        log_bytes=max(len(process.logged()) for process in processes),
        quiet_p99_ms=Seen.between(watch.trips(), quiet_started, started).p99_raw_ms(),
        probe_p99_ms=seen.p99_ms(),
        probe_p99_raw_ms=seen.p99_raw_ms(),
        probe_longest_ms=seen.longest_ms(),
        probe_records=len(seen.of(probe.PRODUCE)),
        pulses=len(seen.of(probe.PULSE)),
        arrival_p99_ms=seen.p99_ms(probe.ARRIVE) if target.door else None,
        arrival_p99_raw_ms=seen.p99_raw_ms(probe.ARRIVE) if target.door else None,
        arrivals=len(seen.of(probe.ARRIVE)),
        honest=[seen.latencies(kind) for kind in _honest_kinds(attack)],
        memory=memory,
        disk_bytes=disk,
        responses=target.responses,
        ailments=ailments,
    )


def grouped_losses(losses: list[str]) -> list[str]:
    """Group losses that differ only in numbers, and return the first of each group with its count."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for loss in losses:
        kind = re.sub(r"\d+", "N", loss)
        first.setdefault(kind, loss)
        counts[kind] += 1
    return [f"lost {first[kind]} ({count} times)" for kind, count in counts.most_common(KINDS_OF_LOSSES_MAX)]


def _honest_kinds(attack: Attack) -> list[str]:
    """Return the kinds of honest requests to report for a flood; other attacks report the probe's only."""
    if not attack.probe.fetches:
        return []
    return [probe.PRODUCE, probe.FETCH, *([probe.HTTP] if attack.probe.http else ())]


def _term(target: Target) -> int | None:
    """Return the highest Raft term of the cluster, or None for a standalone node."""
    if target.cluster is None:
        return None
    return max(int(target.cluster.status(node.node_id)["term"]) for node in target.nodes)


def _run_strike(attack: Attack, target: Target) -> list[str]:
    try:
        attack.strike(target)
    except Exception as error:  # an interrupted attack proves nothing
        return [f"the attack was interrupted: {type(error).__name__}: {error}"]
    return []


def _health_problems(target: Target) -> list[str]:
    """Return the problems of nodes that do not respond, or that do not see the other nodes of the cluster."""
    try:
        if target.cluster is not None:
            target.cluster.wait_until_ready(AFTERWARDS_SECONDS_MAX)
        else:
            target.victim.listed_brokers()
    except (ClientError, BrokerFailed) as error:
        return [f"not healthy after the attack: {error}"]
    return []


def _lost_records(watch: Watch, target: Target) -> list[str]:
    """Return the acknowledged records of the probe that cannot be read at their offsets."""
    acknowledged_trips = [trip.details for trip in watch.trips() if trip.kind == probe.PRODUCE]
    try:
        read = {record.offset: record.value for record in target.victim.records(target.probe_topic)}
    except (ClientError, BrokerFailed) as error:
        return [f"the probe's records cannot be read: {error}"]
    lost = missing({each["offset"]: each["number"] for each in acknowledged_trips}, read)
    return [f"{len(lost)} acknowledged records are lost, the first at offset {min(lost)}"] if lost else []


def missing(acknowledged: dict[int, int], read: dict[int, bytes | None]) -> list[int]:
    """Return the offsets that hold no record, or another one than was acknowledged."""
    return [offset for offset, number in acknowledged.items() if read.get(offset) != probe.value_of(number)]
