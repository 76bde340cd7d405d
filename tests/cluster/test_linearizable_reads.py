"""With `read_quorum`, metadata reads and writes through all nodes are linearizable, whatever fault one node has.

All operations are checked: reads, writes, and rejections, since "already exists" and "unknown topic" are reads, too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from chronik.config import Address
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.linearizability.checker import check_history
from tests.linearizability.clients import READS, WRITES, LinearizabilityLoad, TopicClient
from tests.linearizability.faults import choose_faults
from tests.linearizability.topics import TOPICS, Create, Get, Set, TopicAnswer, TopicOperation
from tests.run_size import IS_LONG_RUN, SEED, sized

pytestmark = pytest.mark.xdist_group("cluster")

FAULTS = sized(5, 50)

TOPICS_AT_A_TIME = 3
"""Few topics, so that clients conflict; and new ones for each fault, so that unknown outcomes of the previous fault do
not explain later reads."""

FAULT_SECONDS = (2.0, 12.0 if IS_LONG_RUN else 4.0)
"""Longer than an election, sometimes longer than a client timeout and, in the long run, than a node's own timeout."""

OPERATIONS_AT_LEAST = 100
"""Operations before a fault, so that reads can be stale; during it, so that there are newer values; and after it, so
that delayed operations have completed."""


def address(node: ClusterNode) -> Address:
    return Address.parse(node.bootstrap)


def topics_of(fault_number: int) -> list[str]:
    return [f"fault-{fault_number}-topic-{number}" for number in range(TOPICS_AT_A_TIME)]


def wait_for_operations(cluster: Cluster, load: LinearizabilityLoad) -> None:
    enough = len(load.history) + OPERATIONS_AT_LEAST

    def missing() -> str | None:
        load.raise_failure()
        return None if len(load.history) >= enough else f"{len(load.history)} of {enough} operations"

    cluster.wait_until(missing, "responses to clients")


def wait_for_effect(cluster: Cluster, load: LinearizabilityLoad, seconds: float) -> None:
    """Wait until requests of clients have timed out and the fault has lasted long enough."""
    before, until = load.unanswered(), time.monotonic() + seconds

    def missing() -> str | None:
        if load.unanswered() == before:
            return "every request got a response"
        return None if time.monotonic() >= until else f"not {seconds:.1f} s yet"

    cluster.wait_until(missing, "an effect of the fault")


def test_metadata_reads_are_linearizable_on_all_nodes(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory(links=True, read_quorum=True)
    randomness = random.Random(SEED)
    load = LinearizabilityLoad([address(node) for node in cluster.nodes.values()], SEED)
    fault_names = []
    try:
        load.start(topics_of(0))
        for number, fault in enumerate(choose_faults(FAULTS, randomness)):
            load.work_on(topics_of(number))
            wait_for_operations(cluster, load)
            with fault.befall(cluster, fault.victim(cluster, randomness)):
                wait_for_effect(cluster, load, randomness.uniform(*FAULT_SECONDS))
                wait_for_operations(cluster, load)
            cluster.wait_until_ready()
            wait_for_operations(cluster, load)
            fault_names.append(str(fault))
    finally:
        load.stop()
    assert len(fault_names) == FAULTS
    violations = check_history(TOPICS, load.history)
    assert not violations, "\n\n".join(map(str, violations))

    for client in load.clients:
        assert client.outcomes[READS], f"no successful read: {client}"
        assert client.outcomes[WRITES], f"no successful write: {client}"
    outcomes_text = ", ".join(f"{number} {name}" for name, number in sorted(load.outcomes().items()))
    record_property(
        "summary", f"linearizable over {FAULTS} faults ({', '.join(sorted(set(fault_names)))}): {outcomes_text}"
    )


def test_checker_detects_stale_reads_of_isolated_node(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory(links=True, read_quorum=False)
    leader = cluster.leader()
    follower = next(node for node in cluster.live_nodes if node is not leader)
    history: list[TopicOperation] = []
    writer, reader = TopicClient(1, address(leader), history), TopicClient(2, address(follower), history)
    try:
        assert writer.perform("topic", Create(1)) is TopicAnswer.DONE
        cluster.wait_until_agreed()
        assert reader.perform("topic", Get()) == 1
        cluster.isolate(follower.node_id)
        assert writer.perform("topic", Set(2)) is TopicAnswer.DONE
        assert check_history(TOPICS, history) == []

        def unanswered() -> str | None:
            return "the node still waits for a majority" if reader.perform("topic", Get()) is None else None

        cluster.wait_until(unanswered, "the node to respond without a majority")
        (violation,) = check_history(TOPICS, history)
        assert violation.unexplained is history[-1]
        assert violation.states == (2,)
        cluster.restore_links()
        cluster.wait_until_ready()
        cluster.wait_until_agreed()
        assert reader.perform("topic", Get()) == 2
    finally:
        writer.close()
        reader.close()
