"""What befalls nodes for a while, as context managers: at their end the cluster is as it was.

Clients reach every node at all times: cuts are between nodes. A client that cannot reach a node is no danger to what
was acknowledged; one that still talks to a node which the others have given up is. (What befalls the whole network,
with clients and all, is in network_faults.)
"""

from __future__ import annotations

import random
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

from chronik.testing.cluster import ClusterNode
from tests.chaos.clients import wait_for
from tests.chaos.cluster import ChaosCluster, ChaosNode
from tests.chaos.turns import taking_turns

DISK_BYTES_LEFT = 8 * 1024
"""How far above the size of the node's own log its files may still grow: what it has to say must find room."""

DISK_SECONDS_MAX = 20.0
"""Until some file has reached its limit: two seconds with the usual load, longer when nobody can write."""

STAND_SECONDS, GO_SECONDS = (0.1, 0.9), (0.05, 0.3)
CLOCK_HOURS = (1, 6, 30, 24 * 9)

LAG_SECONDS = 5.0
"""A broker's session, and time for the others to write what it does not have."""

Victims = Sequence[ClusterNode]
Fault = Callable[[ChaosCluster, Victims, random.Random], AbstractContextManager[str]]
"""Yields what was done, in words."""


@contextmanager
def killed(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    for victim in victims:
        victim.kill()
    yield f"{named(victims)} killed"
    for victim in victims:
        victim.start()


@contextmanager
def all_killed(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """At once; they come back in any order."""
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
    yield f"{named(victims)} paused"
    for victim in victims:
        victim.resume()


@contextmanager
def stuttering(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Stopped and let go on in quick turns: seldom long enough to be given up, never long enough to be of use."""
    stands, goes = rng.uniform(*STAND_SECONDS), rng.uniform(*GO_SECONDS)

    @contextmanager
    def standing_still() -> Iterator[None]:
        for victim in victims:
            victim.pause()
        try:
            yield
        finally:
            for victim in victims:
                victim.resume()

    with taking_turns(standing_still, stands, goes):
        yield f"{named(victims)} stopped for {stands:.2f} s again and again, with {goes:.2f} s between"


@contextmanager
def clock_jumping(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """The time of day is wrong by hours or days, and at the end right again; every third time on a node that is killed
    meanwhile and starts with the wrong one."""
    hours = rng.choice(CLOCK_HOURS) * rng.choice((-1, 1))
    is_restarted = rng.random() < 1 / 3
    for victim in victims:
        assert isinstance(victim, ChaosNode)
        victim.shift_clock(hours * 3600)
        if is_restarted:
            victim.kill()
            victim.start()
    try:
        yield f"the clock of {named(victims)} {hours:+g} h off{', restarted' if is_restarted else ''}"
    finally:
        for victim in victims:
            assert isinstance(victim, ChaosNode)
            victim.shift_clock(0.0)


@contextmanager
def cut_off(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """From all others; or, every third time, from one of them only, while both hear the rest."""
    if rng.random() < 2 / 3:
        cluster.cut_off(*(victim.node_id for victim in victims))
        yield f"{named(victims)} cut off"
    else:
        one = victims[0].node_id
        other = rng.choice(others_of(cluster, victims))
        cluster.cut(one, other)
        cluster.cut(other, one)
        yield f"nodes {one} and {other} cut off from each other only"
    cluster.heal()


@contextmanager
def all_cut_off(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    cluster.cut_all()
    yield "all nodes cut off from each other"
    cluster.heal()


@contextmanager
def cut_one_way(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    is_mute = rng.random() < 0.5
    for victim in victims:
        for other in others_of(cluster, victims):
            cluster.cut(*((victim.node_id, other) if is_mute else (other, victim.node_id)))
    yield f"{named(victims)} {'mute' if is_mute else 'deaf'}"
    cluster.heal()


@contextmanager
def disk_full(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """As a full disk does, a limit on the size of files makes the next write come back short or fail (EFBIG). It begins
    when the node has noticed, and stopped. The soft limit alone is lowered, so that it can be lifted from a node that
    goes on."""
    for victim in victims:
        room = len(victim.log.encode()) + DISK_BYTES_LEFT
        resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    has_stopped = wait_for(lambda: not any(victim.running for victim in victims), DISK_SECONDS_MAX)
    yield f"the disk of {named(victims)} full, {'so that it stopped' if has_stopped else 'which nobody noticed'}"
    for victim in victims:
        if victim.running:
            with suppress(ProcessLookupError):  # it stopped just now
                resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if not victim.running:
            victim.kill()
            victim.start()


@contextmanager
def overtaken(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """One node is cut off until the others have gone on without it. At the moment it comes back another one is killed:
    the one that has missed something must not take over from it."""
    laggard = rng.choice(others_of(cluster, victims))
    cluster.cut_off(laggard)
    wait_for(lambda: False, LAG_SECONDS)
    cluster.heal()
    for victim in victims:
        victim.kill()
    yield f"node {laggard} back after {LAG_SECONDS:g} s, and {named(victims)} killed"
    for victim in victims:
        victim.start()


@contextmanager
def mixed(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Two faults at a time, of two nodes: more than what a cluster of three can go on with."""
    with ExitStack() as stack:
        kinds = rng.sample((killed, paused, cut_off, cut_one_way, disk_full, stuttering), 2)
        second = cluster.nodes[rng.choice(others_of(cluster, victims))]
        words = [stack.enter_context(kinds[0](cluster, victims, rng))]
        words.append(stack.enter_context(kinds[1](cluster, [second], rng)))
        yield " and ".join(words)


def named(victims: Victims) -> str:
    return " and ".join(f"node {victim.node_id}" for victim in victims)


def others_of(cluster: ChaosCluster, victims: Victims) -> list[int]:
    hit = {victim.node_id for victim in victims}
    return [node_id for node_id in cluster.nodes if node_id not in hit]
