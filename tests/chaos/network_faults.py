"""Network faults between nodes, and between nodes and clients, as context managers.

They require a cluster with its own network.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.chaos.cluster import ChaosCluster
from tests.chaos.faults import Victims, alternating, format_nodes, other_nodes, stuttering
from tests.chaos.network import CLIENTS, Barrier, Direction, LossyLink, directions_among, directions_between

SLOW_SECONDS = (0.3, 1.2)
"""Delay of each direction, from an intercontinental link to almost a broker session."""

LOSS, TWICE, SPREAD_SECONDS = (0.02, 0.15), 0.05, (0.01, 0.1)
FLAP_SECONDS = (0.15, 0.6)


@contextmanager
def rejected(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Reject packets between nodes with TCP resets: to the victim, from it, or both.

    A reset looks as if the process had exited. Clients still reach the node.
    """
    with _barrier_around(cluster, victims, other_nodes(cluster, victims), rng) as way:
        yield f"{format_nodes(victims)} rejected by the other nodes' firewall, {way}"


@contextmanager
def clients_rejected(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    with _barrier_around(cluster, victims, [CLIENTS], rng) as way:
        yield f"{format_nodes(victims)} rejected by the clients' firewall, {way}"


@contextmanager
def _barrier_around(cluster: ChaosCluster, victims: Victims, others: list[int], rng: random.Random) -> Iterator[str]:
    inward = [(other, victim.node_id) for other in others for victim in victims]
    outward = [(target, source) for source, target in inward]
    way, directions = rng.choice((("both ways", inward + outward), ("inwards", inward), ("outwards", outward)))
    with cluster.network.imposed(dict.fromkeys(directions, Barrier.REJECTS)):
        yield way


@contextmanager
def isolated(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Isolate the node from nodes and clients, by dropping or rejecting packets."""
    barrier = rng.choice(list(Barrier))
    ids = [victim.node_id for victim in victims]
    around = directions_between(ids, [CLIENTS, *other_nodes(cluster, victims)])
    with cluster.network.imposed(dict.fromkeys(around, barrier)):
        yield f"{format_nodes(victims)} isolated from nodes and clients, which are {barrier.name.lower()}"


@contextmanager
def cut_ring(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Cut the links in a ring, so that each node hears only one neighbour."""
    ring = rng.sample(list(cluster.nodes), len(cluster.nodes))
    directions = list(zip(ring, [*ring[1:], ring[0]], strict=True))
    barrier = rng.choice(list(Barrier))
    with cluster.network.imposed(dict.fromkeys(directions, barrier)):
        yield f"one way around the ring {' → '.join(map(str, [*ring, ring[0]]))} {barrier.name.lower()}"


@contextmanager
def bridged(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Cut the link between two nodes. Both still reach the third."""
    bridge, barrier = victims[0].node_id, rng.choice(list(Barrier))
    with cluster.network.imposed(dict.fromkeys(directions_among(other_nodes(cluster, victims)), barrier)):
        yield f"all but node {bridge} apart from each other ({barrier.name.lower()})"


@contextmanager
def slow(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    ids = [victim.node_id for victim in victims]
    line = LossyLink(delay_s=rng.uniform(*SLOW_SECONDS))
    around = directions_between(ids, other_nodes(cluster, victims))
    with cluster.network.imposed(dict.fromkeys(around, line)):
        yield f"{format_nodes(victims)} {line.delay_s:.2f} s away from the other nodes, each way"


@contextmanager
def lossy(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Lose, duplicate and reorder packets on all links."""
    line = LossyLink(spread_s=rng.uniform(*SPREAD_SECONDS), loss=rng.uniform(*LOSS), twice=TWICE)
    with cluster.network.imposed(dict.fromkeys(directions_among([CLIENTS, *cluster.nodes]), line)):
        yield f"{line.loss:.0%} of packets lost, {line.twice:.0%} duplicated, up to {line.spread_s * 1000:.0f} ms late"


@contextmanager
def responses_lost(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Drop the responses to clients. Their requests arrive and are executed."""
    to_clients = [(victim.node_id, CLIENTS) for victim in victims]
    with cluster.network.imposed(dict.fromkeys(to_clients, Barrier.DROPS)):
        yield f"responses of {format_nodes(victims)} to clients lost"


@contextmanager
def flapping(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Cut and heal the links repeatedly."""
    cut_s, healed_s, barrier = rng.uniform(*FLAP_SECONDS), rng.uniform(*FLAP_SECONDS), rng.choice(list(Barrier))
    ids = [victim.node_id for victim in victims]
    ways = dict.fromkeys(directions_between(ids, other_nodes(cluster, victims)), barrier)
    with alternating(lambda: cluster.network.imposed(ways), cut_s, healed_s):
        what = f"{format_nodes(victims)} cut off for {cut_s:.2f} s repeatedly"
        yield f"{what}, with {healed_s:.2f} s between ({barrier.name.lower()})"


@contextmanager
def all_faults(cluster: ChaosCluster, victims: Victims, rng: random.Random) -> Iterator[str]:
    """Apply many faults at once: packet loss, a slow, a flapping and a rejecting link, and a stuttering node."""
    everyone = list(cluster.nodes)
    slow_one, flapping_one, rejecting_one = (rng.choice(directions_among([CLIENTS, *everyone])) for _ in range(3))
    loss = LossyLink(spread_s=SPREAD_SECONDS[0], loss=LOSS[0], twice=TWICE)
    flaps: dict[Direction, Barrier] = {flapping_one: Barrier.DROPS}
    with ExitStack() as stack:
        stack.enter_context(cluster.network.imposed(dict.fromkeys(directions_among([CLIENTS, *everyone]), loss)))
        stack.enter_context(cluster.network.imposed({slow_one: LossyLink(delay_s=rng.uniform(*SLOW_SECONDS))}))
        stack.enter_context(cluster.network.imposed({rejecting_one: Barrier.REJECTS}))
        stack.enter_context(alternating(lambda: cluster.network.imposed(flaps), *FLAP_SECONDS))
        words = stack.enter_context(stuttering(cluster, victims, rng))
        lines = f"{_describe(slow_one)} slow, {_describe(flapping_one)} flaps, {_describe(rejecting_one)} rejects"
        yield f"all at once: {lines}, all lose {loss.loss:.0%}, {words}"


def _describe(direction: Direction) -> str:
    return "→".join("clients" if place == CLIENTS else f"node {place}" for place in direction)
