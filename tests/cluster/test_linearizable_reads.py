"""With `read_quorum`, clients of all nodes read topics and their configs as if there were one node, whatever befalls
one of the three.

Judged is everything: what was read, what was written, and what was refused, since "exists already" and "no such topic"
are readings too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from chronik.config import Address
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.linearizability.checker import check
from tests.linearizability.clients import READS, WRITES, Load, TopicClient
from tests.linearizability.faults import some_faults
from tests.linearizability.topics import TOPICS, Answer, Create, Get, Set, TopicOperation
from tests.long import LONG, SEED, count

pytestmark = pytest.mark.xdist_group("cluster")

FAULTS = count(5, 50)

TOPICS_AT_A_TIME = 3
"""Few, so that clients meet; and new ones for each fault, so that the unknown outcomes of the last one do not go on
explaining what is read."""

FAULT_SECONDS = (2.0, 12.0 if LONG else 4.0)
"""Longer than an election, and some longer than a client waits; in the long run also longer than a node tries."""

OPERATIONS_AT_LEAST = 100
"""Before a fault, so that there is something to be stale; during it, so that there is something newer; and after it,
so that what was held up has come through."""


def address(node: ClusterNode) -> Address:
    return Address.parse(node.bootstrap)


def topics_of(fault_number: int) -> list[str]:
    return [f"fault-{fault_number}-topic-{number}" for number in range(TOPICS_AT_A_TIME)]


def load_goes_on(cluster: Cluster, load: Load) -> None:
    enough = len(load.history) + OPERATIONS_AT_LEAST

    def missing() -> str | None:
        load.raise_failure()
        return None if len(load.history) >= enough else f"{len(load.history)} of {enough} operations"

    cluster.wait_until(missing, "clients are answered")


def fault_is_felt(cluster: Cluster, load: Load, seconds: float) -> None:
    """Returns when clients were left without an answer, and the fault has lasted so long."""
    before, until = load.unanswered(), time.monotonic() + seconds

    def missing() -> str | None:
        if load.unanswered() == before:
            return "every client was answered"
        return None if time.monotonic() >= until else f"not {seconds:.1f} s yet"

    cluster.wait_until(missing, "the fault is felt")


def test_metadata_reads_are_linearizable_on_all_nodes(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory(links=True, read_quorum=True)
    randomness = random.Random(SEED)
    load = Load([address(node) for node in cluster.nodes.values()], SEED)
    befallen = []
    try:
        load.start(topics_of(0))
        for number, fault in enumerate(some_faults(FAULTS, randomness)):
            load.work_on(topics_of(number))
            load_goes_on(cluster, load)
            with fault.befall(cluster, fault.victim(cluster, randomness)):
                fault_is_felt(cluster, load, randomness.uniform(*FAULT_SECONDS))
                load_goes_on(cluster, load)
            cluster.wait_until_ready()
            load_goes_on(cluster, load)
            befallen.append(str(fault))
    finally:
        load.end()
    assert len(befallen) == FAULTS
    violations = check(TOPICS, load.history)
    assert not violations, "\n\n".join(map(str, violations))

    for client in load.clients:
        assert client.outcomes[READS], f"it has read nothing: {client}"
        assert client.outcomes[WRITES], f"it has written nothing: {client}"
    told = ", ".join(f"{number} {name}" for name, number in sorted(load.outcomes().items()))
    record_property("summary", f"linearizable over {FAULTS} faults ({', '.join(sorted(set(befallen)))}): {told}")


def test_checker_detects_stale_reads_of_isolated_node(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory(links=True, read_quorum=False)
    leader = cluster.leader()
    follower = next(node for node in cluster.live if node is not leader)
    history: list[TopicOperation] = []
    writer, reader = TopicClient(1, address(leader), history), TopicClient(2, address(follower), history)
    try:
        assert writer.perform("topic", Create(1)) is Answer.DONE
        cluster.wait_until_agreed()
        assert reader.perform("topic", Get()) == 1
        cluster.cut_off(follower.node_id)
        assert writer.perform("topic", Set(2)) is Answer.DONE
        assert check(TOPICS, history) == []

        def unanswered() -> str | None:
            return "it looks for a majority" if reader.perform("topic", Get()) is None else None

        cluster.wait_until(unanswered, "it has found that there is none, and says what it knows")
        (violation,) = check(TOPICS, history)
        assert violation.unexplained is history[-1]
        assert violation.states == (2,)
        cluster.heal()
        cluster.wait_until_ready()
        cluster.wait_until_agreed()
        assert reader.perform("topic", Get()) == 2
    finally:
        writer.close()
        reader.close()
