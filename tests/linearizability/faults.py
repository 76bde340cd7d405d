"""Faults of one node of a cluster, as context managers that restore the node at their end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from chronik.testing.cluster import Cluster, ClusterNode


@contextmanager
def killed(cluster: Cluster, victim: ClusterNode) -> Iterator[None]:
    victim.kill()
    yield
    victim.start()


@contextmanager
def paused(cluster: Cluster, victim: ClusterNode) -> Iterator[None]:
    victim.pause()
    yield
    victim.resume()


@contextmanager
def cut_off(cluster: Cluster, victim: ClusterNode) -> Iterator[None]:
    cluster.isolate(victim.node_id)
    yield
    cluster.restore_links()


@contextmanager
def mute(cluster: Cluster, victim: ClusterNode) -> Iterator[None]:
    """Cut the links from the node to the others, but not to it."""
    for other in _others(cluster, victim):
        cluster.interrupt_link(victim.node_id, other)
    yield
    cluster.restore_links()


@contextmanager
def deaf(cluster: Cluster, victim: ClusterNode) -> Iterator[None]:
    """Cut the links from the others to the node, but not from it."""
    for other in _others(cluster, victim):
        cluster.interrupt_link(other, victim.node_id)
    yield
    cluster.restore_links()


def _others(cluster: Cluster, victim: ClusterNode) -> list[int]:
    return [node_id for node_id in cluster.nodes if node_id != victim.node_id]


class NodeFault(NamedTuple):
    befall: Callable[[Cluster, ClusterNode], AbstractContextManager[None]]
    of_leader: bool

    def __str__(self) -> str:
        return f"{'leader' if self.of_leader else 'follower'} {self.befall.__name__}"

    def victim(self, cluster: Cluster, randomness: random.Random) -> ClusterNode:
        leader = cluster.leader()
        if self.of_leader:
            return leader
        return randomness.choice([node for node in cluster.live_nodes if node is not leader])


WORST_FAULTS = (
    NodeFault(killed, of_leader=True),
    NodeFault(paused, of_leader=True),
    NodeFault(cut_off, of_leader=True),
    NodeFault(mute, of_leader=True),
    NodeFault(cut_off, of_leader=False),
)
"""Faults that can make a node believe that its state is current."""

OTHERS = (
    NodeFault(deaf, of_leader=True),
    NodeFault(killed, of_leader=False),
    NodeFault(paused, of_leader=False),
    NodeFault(mute, of_leader=False),
    NodeFault(deaf, of_leader=False),
)


def choose_faults(count: int, randomness: random.Random) -> Iterator[NodeFault]:
    """Yield the worst faults first, in random order, and then random ones."""
    while count > 0:
        turn = [*randomness.sample(WORST_FAULTS, len(WORST_FAULTS)), *randomness.sample(OTHERS, len(OTHERS))][:count]
        yield from turn
        count -= len(turn)
