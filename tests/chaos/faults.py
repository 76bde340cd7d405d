"""What befalls nodes for a while, as context managers: at their end the cluster is as it was. And what comes when: a
schedule of such faults, chosen by one seed.

Clients reach every node at all times: cuts are between nodes. A client that cannot reach a node is no danger to what
was acknowledged; one that still talks to a node which the others have given up is.
"""

from __future__ import annotations

import random
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum

from chronik.testing.cluster import Cluster, ClusterNode
from tests.chaos.clients import wait_for

HOLD_SECONDS = (2.0, 6.0)
"""Shorter and longer than a broker's session of 3 s: some faults pass before anybody takes over."""

REST_SECONDS = (0.5, 2.0)
PATIENT_SHARE = 0.7

DISK_BYTES_LEFT = 8 * 1024
"""How far above the size of the node's own log its files may still grow: what it has to say must find room."""

DISK_SECONDS_MAX = 20.0
"""Until some file has reached its limit: two seconds with the usual load, longer when nobody can write."""

LAG_SECONDS = 5.0
"""A broker's session, and time for the others to write what it does not have."""

Victims = Sequence[ClusterNode]
Fault = Callable[[Cluster, Victims, random.Random], AbstractContextManager[str]]
"""Yields what was done, in words."""


@contextmanager
def killed(cluster: Cluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    for victim in victims:
        victim.kill()
    yield f"{_named(victims)} killed"
    for victim in victims:
        victim.start()


@contextmanager
def all_killed(cluster: Cluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """At once; they come back in any order."""
    nodes = list(cluster.nodes.values())
    for node in nodes:
        node.kill()
    yield "all nodes killed"
    for node in rng.sample(nodes, len(nodes)):
        node.start()


@contextmanager
def paused(cluster: Cluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    for victim in victims:
        victim.pause()
    yield f"{_named(victims)} paused"
    for victim in victims:
        victim.resume()


@contextmanager
def cut_off(cluster: Cluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """From all others; or, every third time, from one of them only, while both hear the rest."""
    if rng.random() < 2 / 3:
        cluster.cut_off(*(victim.node_id for victim in victims))
        yield f"{_named(victims)} cut off"
    else:
        one = victims[0].node_id
        other = rng.choice(_others(cluster, victims))
        cluster.cut(one, other)
        cluster.cut(other, one)
        yield f"nodes {one} and {other} cut off from each other only"
    cluster.heal()


@contextmanager
def cut_one_way(cluster: Cluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    is_mute = rng.random() < 0.5
    for victim in victims:
        for other in _others(cluster, victims):
            cluster.cut(*((victim.node_id, other) if is_mute else (other, victim.node_id)))
    yield f"{_named(victims)} {'mute' if is_mute else 'deaf'}"
    cluster.heal()


@contextmanager
def disk_full(cluster: Cluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """As a full disk does, a limit on the size of files makes the next write come back short or fail (EFBIG). It begins
    when the node has noticed, and stopped. The soft limit alone is lowered, so that it can be lifted from a node that
    goes on."""
    for victim in victims:
        room = len(victim.log.encode()) + DISK_BYTES_LEFT
        resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    has_stopped = wait_for(lambda: not any(victim.running for victim in victims), DISK_SECONDS_MAX)
    yield f"the disk of {_named(victims)} full, {'so that it stopped' if has_stopped else 'which nobody noticed'}"
    for victim in victims:
        if victim.running:
            with suppress(ProcessLookupError):  # it stopped just now
                resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if not victim.running:
            victim.kill()
            victim.start()


@contextmanager
def overtaken(cluster: Cluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """One node is cut off until the others have gone on without it. At the moment it comes back another one is killed:
    the one that has missed something must not take over from it."""
    laggard = rng.choice(_others(cluster, victims))
    cluster.cut_off(laggard)
    wait_for(lambda: False, LAG_SECONDS)
    cluster.heal()
    for victim in victims:
        victim.kill()
    yield f"node {laggard} back after {LAG_SECONDS:g} s, and {_named(victims)} killed"
    for victim in victims:
        victim.start()


@contextmanager
def mixed(cluster: Cluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Two faults at a time, of two nodes: more than what a cluster of three can go on with."""
    with ExitStack() as stack:
        kinds = rng.sample((killed, paused, cut_off, cut_one_way, disk_full), 2)
        second = cluster.nodes[rng.choice(_others(cluster, victims))]
        words = [stack.enter_context(kinds[0](cluster, victims, rng))]
        words.append(stack.enter_context(kinds[1](cluster, [second], rng)))
        yield " and ".join(words)


def _named(victims: Victims) -> str:
    return " and ".join(f"node {victim.node_id}" for victim in victims)


def _others(cluster: Cluster, victims: Victims) -> list[int]:
    hit = {victim.node_id for victim in victims}
    return [node_id for node_id in cluster.nodes if node_id not in hit]


@dataclass(frozen=True)
class Kind:
    befall: Fault
    hits_minority: bool = True
    """So that the others have to go on."""


KINDS: dict[str, Kind] = {
    "kill": Kind(killed),
    "killall": Kind(all_killed, hits_minority=False),
    "pause": Kind(paused),
    "partition": Kind(cut_off),
    "oneway": Kind(cut_one_way),
    "diskfull": Kind(disk_full),
    "laggard": Kind(overtaken),
    "mixed": Kind(mixed, hits_minority=False),
}


class Target(Enum):
    PARTITION_LEADER = "the leader of a partition"
    CONTROLLER = "the controller"
    ANY = "any node"


TARGET_WEIGHTS = {Target.PARTITION_LEADER: 5, Target.CONTROLLER: 3, Target.ANY: 2}


@dataclass(frozen=True)
class Step:
    number: int
    kind: str
    target: Target
    hold_s: float
    rest_s: float
    is_patient: bool
    """Begins when all replicas are in sync; then, if a minority is hit, the others have to go on."""
    seed: str
    """Of all further choices, such as which partition."""

    def __str__(self) -> str:
        manner = "when all are in sync" if self.is_patient else "at once"
        return f"{self.number:3d}. {self.kind:<9} of {self.target.value:<25} for {self.hold_s:.1f} s, {manner}"


def schedule(seed: int, kinds: Sequence[str]) -> Iterator[Step]:
    """Without an end. Every kind comes once before one comes again."""
    rng = random.Random(f"chaos {seed}")
    number = 0
    while True:
        for kind in rng.sample(kinds, len(kinds)):
            number += 1
            (target,) = rng.choices(list(TARGET_WEIGHTS), list(TARGET_WEIGHTS.values()))
            yield Step(
                number,
                kind,
                target,
                hold_s=round(rng.uniform(*HOLD_SECONDS), 1),
                rest_s=round(rng.uniform(*REST_SECONDS), 1),
                is_patient=rng.random() < PATIENT_SHARE,
                seed=f"{seed} {number}",
            )


def minority(cluster: Cluster, first: ClusterNode, rng: random.Random) -> list[ClusterNode]:
    """`first` and so many others that the rest can go on."""
    others = [node for node in cluster.nodes.values() if node is not first]
    count = rng.randint(1, max(1, (len(cluster.nodes) - 1) // 2))
    return [first, *rng.sample(others, count - 1)]
