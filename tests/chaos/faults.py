"""Faults of nodes, as context managers that restore the cluster at their end.

Cuts are between nodes: clients reach every node at all times. A client that cannot reach a node is no risk for
acknowledged records; one that still reaches an isolated node is. (`network_faults` has faults that affect clients.)
"""

from __future__ import annotations

import random
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

from chronik.testing.cluster import ClusterNode
from tests.chaos.clients import wait_for
from tests.chaos.cluster import ChaosCluster, ChaosNode

DISK_BYTES_LEFT = 8 * 1024
"""How far a node's files may grow beyond the size of its own log, which must still be writable."""

DISK_SECONDS_MAX = 20.0
"""Time to wait until a file reaches its limit: usually two seconds, longer without writes."""

STAND_SECONDS, GO_SECONDS = (0.1, 0.9), (0.05, 0.3)
CLOCK_HOURS = (1, 6, 30, 24 * 9)

LAG_SECONDS = 5.0
"""A broker session, plus time for the others to write records that the isolated node misses."""

Victims = Sequence[ClusterNode]
Fault = Callable[[ChaosCluster, Victims, random.Random], AbstractContextManager[str]]
"""A context manager that applies a fault and yields its description."""


@contextmanager
def alternating(state: Callable[[], AbstractContextManager[None]], on_s: float, off_s: float) -> Iterator[None]:
    """Enter `state` for `on_s` and leave it for `off_s` repeatedly until the block ends. Raises its errors."""
    ending = threading.Event()
    failures: list[BaseException] = []

    def alternate() -> None:
        try:
            while not ending.is_set():
                with state():
                    ending.wait(on_s)
                ending.wait(off_s)
        except BaseException as failure:  # raised again in the waiting thread
            failures.append(failure)

    thread = threading.Thread(target=alternate, name="chaos-turns", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
    if failures:
        raise failures[0]


@contextmanager
def killed(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    for victim in victims:
        victim.kill()
    yield f"{format_nodes(victims)} killed"
    for victim in victims:
        victim.start()


@contextmanager
def all_killed(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Kill all nodes at the same time and restart them in random order."""
    nodes = list(cluster.nodes.values())
    for node in nodes:
        node.kill()
    yield "all nodes killed"
    for node in rng.sample(nodes, len(nodes)):
        node.start()


@contextmanager
def paused(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    for victim in victims:
        victim.pause()
    yield f"{format_nodes(victims)} paused"
    for victim in victims:
        victim.resume()


@contextmanager
def stuttering(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Stop and continue the node in quick alternation, mostly too short to be fenced."""
    stands, goes = rng.uniform(*STAND_SECONDS), rng.uniform(*GO_SECONDS)

    @contextmanager
    def stopped() -> Iterator[None]:
        for victim in victims:
            victim.pause()
        try:
            yield
        finally:
            for victim in victims:
                victim.resume()

    with alternating(stopped, stands, goes):
        yield f"{format_nodes(victims)} stopped for {stands:.2f} s repeatedly, with {goes:.2f} s between"


@contextmanager
def clock_jumping(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Shift the wall clock by hours or days. Every third time, the node is also restarted with the wrong clock."""
    hours = rng.choice(CLOCK_HOURS) * rng.choice((-1, 1))
    is_restarted = rng.random() < 1 / 3
    for victim in victims:
        assert isinstance(victim, ChaosNode)
        victim.shift_clock(hours * 3600)
        if is_restarted:
            victim.kill()
            victim.start()
    try:
        yield f"the clock of {format_nodes(victims)} {hours:+g} h off{', restarted' if is_restarted else ''}"
    finally:
        for victim in victims:
            assert isinstance(victim, ChaosNode)
            victim.shift_clock(0.0)


@contextmanager
def cut_off(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Isolate the node from all others or, every third time, from one of them only."""
    if rng.random() < 2 / 3:
        cluster.isolate(*(victim.node_id for victim in victims))
        yield f"{format_nodes(victims)} cut off"
    else:
        one = victims[0].node_id
        other = rng.choice(other_nodes(cluster, victims))
        cluster.interrupt_link(one, other)
        cluster.interrupt_link(other, one)
        yield f"nodes {one} and {other} cut off from each other only"
    cluster.restore_links()


@contextmanager
def all_cut_off(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    cluster.isolate_all()
    yield "all nodes cut off from each other"
    cluster.restore_links()


@contextmanager
def cut_one_way(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    is_mute = rng.random() < 0.5
    for victim in victims:
        for other in other_nodes(cluster, victims):
            cluster.interrupt_link(*((victim.node_id, other) if is_mute else (other, victim.node_id)))
    yield f"{format_nodes(victims)} {'mute' if is_mute else 'deaf'}"
    cluster.restore_links()


@contextmanager
def disk_full(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Simulate a full disk with a limit on file sizes, which makes writes short or fail (EFBIG).

    The fault begins when the node has noticed it and stopped. Only the soft limit is lowered, so that it can be lifted
    for a running process.
    """
    for victim in victims:
        limit_bytes = len(victim.log.encode()) + DISK_BYTES_LEFT
        resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
    has_stopped = wait_for(lambda: not any(victim.is_running for victim in victims), DISK_SECONDS_MAX)
    yield (
        f"the disk of {format_nodes(victims)} full, "
        f"{'and the node stopped' if has_stopped else 'not noticed by the node'}"
    )
    for victim in victims:
        if victim.is_running:
            with suppress(ProcessLookupError):  # the process has just exited
                resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if not victim.is_running:
            victim.kill()
            victim.start()


@contextmanager
def overtaken(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Isolate a node until it has missed records, then reconnect it and kill another one.

    The outdated node must not become leader.
    """
    laggard = rng.choice(other_nodes(cluster, victims))
    cluster.isolate(laggard)
    wait_for(lambda: False, LAG_SECONDS)
    cluster.restore_links()
    for victim in victims:
        victim.kill()
    yield f"node {laggard} back after {LAG_SECONDS:g} s, and {format_nodes(victims)} killed"
    for victim in victims:
        victim.start()


@contextmanager
def mixed(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Apply two faults to two nodes, more than a cluster of three can tolerate."""
    with ExitStack() as stack:
        kinds = rng.sample((killed, paused, cut_off, cut_one_way, disk_full, stuttering), 2)
        second = cluster.nodes[rng.choice(other_nodes(cluster, victims))]
        words = [stack.enter_context(kinds[0](cluster, victims, rng))]
        words.append(stack.enter_context(kinds[1](cluster, [second], rng)))
        yield " and ".join(words)


def format_nodes(victims: Victims) -> str:
    return " and ".join(f"node {victim.node_id}" for victim in victims)


def other_nodes(cluster: ChaosCluster, victims: Victims) -> list[int]:
    hit = {victim.node_id for victim in victims}
    return [node_id for node_id in cluster.nodes if node_id not in hit]
