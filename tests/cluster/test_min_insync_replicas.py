"""`min.insync.replicas`: acks=all guarantees that number of replicas or fails, even if the ISR changes meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from chronik.testing.cluster import Cluster, ClusterNode
from chronik.testing.plugin import ClusterFactory
from tests.api.request_builders import batch, produce_request
from tests.chaos import partition_states
from tests.chaos.history import Place
from tests.cluster import replication_helpers
from tests.raw import RawClient
from tests.run_size import sized

pytestmark = pytest.mark.xdist_group("cluster")

LAG_MS = 800
PLENTY_MS = 60_000
ACKS_ALL, ACKS_LEADER = -1, 1


def ask(node: ClusterNode, topic: str, value: bytes, acks: int, timeout_ms: int = 20_000) -> PartitionProduceResponse:
    with RawClient(node.bootstrap) as client:
        client.socket.settimeout(replication_helpers.DEADLINE_SECONDS)
        request = produce_request(topic, batch(value), acks=acks, timeout_ms=timeout_ms)
        return client.request(request, 9, ProduceResponse).responses[0].partition_responses[0]


def error_of(answer: PartitionProduceResponse) -> ErrorCode:
    return ErrorCode(answer.error_code)


def wait_until_isr(cluster: Cluster, asked: ClusterNode, place: Place, members: set[int]) -> None:
    cluster.wait_until(
        lambda: (
            None
            if set(seen := partition_states.read_partition_states(asked, [place.topic])[place].in_sync) == members
            else f"{seen}"
        ),
        f"{place} has the ISR {members}",
    )


@contextmanager
def paused(*nodes: ClusterNode) -> Iterator[None]:
    for node in nodes:
        node.pause()
    try:
        yield
    finally:
        for node in nodes:
            node.resume()


def test_acks_all_is_rejected_below_min_insync_replicas(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    cluster = chronik_cluster_factory()
    [place] = replication_helpers.create_topic(cluster, "strict", min_insync_replicas="3")
    leader = replication_helpers.leader_of(cluster, place)
    assert error_of(ask(leader, "strict", b"three copies", ACKS_ALL)) is ErrorCode.NONE
    gone = next(node for node in cluster.nodes.values() if node is not leader)
    gone.kill()
    wait_until_isr(cluster, leader, place, set(cluster.nodes) - {gone.node_id})
    refused = ask(leader, "strict", b"never there", ACKS_ALL)
    assert error_of(refused) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert refused.base_offset == -1
    assert error_of(ask(leader, "strict", b"one copy is enough", ACKS_LEADER)) is ErrorCode.NONE
    gone.start()
    replication_helpers.wait_until_in_sync(cluster, [place])
    assert error_of(ask(leader, "strict", b"three copies again", ACKS_ALL)) is ErrorCode.NONE
    values = [record.value for record in replication_helpers.read_all(cluster.bootstrap, [place])[place]]
    assert values == [b"three copies", b"one copy is enough", b"three copies again"]
    replication_helpers.check_replicas(cluster, [place])


@pytest.mark.parametrize("needed", [2, 3])
def test_waiting_produce_completes_according_to_shrunk_isr(
    chronik_cluster_factory: ClusterFactory, needed: int
) -> None:
    """A paused follower's session is long enough for the leader to remove it from the ISR first."""
    cluster = chronik_cluster_factory(broker_session_ms=PLENTY_MS, broker={"replica.lag.time.max.ms": LAG_MS})
    [place] = replication_helpers.create_topic(cluster, "shrinking", min_insync_replicas=str(needed))
    leader = replication_helpers.leader_of(cluster, place)
    controller = cluster.leader()
    hangs = next(node for node in cluster.nodes.values() if node not in (leader, controller))
    with paused(hangs):
        answer = ask(leader, "shrinking", b"waits", ACKS_ALL)
        in_sync = partition_states.read_partition_states(leader, [place.topic])[place].in_sync
        expected = ErrorCode.NONE if needed == 2 else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert error_of(answer) is expected
        assert hangs.node_id not in in_sync, "the request must wait for the ISR to shrink"
        wait_until_isr(cluster, leader, place, set(cluster.nodes) - {hangs.node_id})
        then = ask(leader, "shrinking", b"afterwards", ACKS_ALL)
        assert error_of(then) is (ErrorCode.NONE if needed == 2 else ErrorCode.NOT_ENOUGH_REPLICAS)
    replication_helpers.wait_until_in_sync(cluster, [place])
    values = [record.value for record in replication_helpers.read_all(cluster.bootstrap, [place])[place]]
    assert values == ([b"waits", b"afterwards"] if needed == 2 else [b"waits"])
    replication_helpers.check_replicas(cluster, [place])


def test_acknowledged_records_survive_paused_followers_and_dead_leader(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    """The ISR shrinks and grows under load; every member has all acknowledged records."""
    cluster = chronik_cluster_factory(broker={"replica.lag.time.max.ms": LAG_MS})
    [place] = places = replication_helpers.create_topic(cluster, "turns")
    load = replication_helpers.ConfluentLoad(cluster.bootstrap, "turns", 1)
    with replication_helpers.running_clients(load):
        for _ in range(sized(1, 5)):
            leader = replication_helpers.leader_of(cluster, place)
            for follower in [node for node in cluster.nodes.values() if node is not leader]:
                load.wait_until_progress()
                with paused(follower):
                    wait_until_isr(cluster, leader, place, set(cluster.nodes) - {follower.node_id})
                    load.wait_until_progress()
                replication_helpers.wait_until_in_sync(cluster, places)
            leader = replication_helpers.leader_of(cluster, place)
            leader.kill()
            load.wait_until_progress()
            leader.start()
            replication_helpers.wait_until_in_sync(cluster, places)
    assert not load.problems, load.problems
    assert replication_helpers.check_records(cluster.bootstrap, places, [load]) == load.count > 0
    replication_helpers.check_replicas(cluster, places)


def test_acks_all_fails_without_followers_and_loses_nothing(
    chronik_cluster_factory: ClusterFactory,
) -> None:
    """The leader alone is also a minority of the cluster: it cannot shrink the ISR and acknowledges nothing."""
    cluster = chronik_cluster_factory(broker={"replica.lag.time.max.ms": LAG_MS})
    [place] = replication_helpers.create_topic(cluster, "alone")
    leader = replication_helpers.leader_of(cluster, place)
    replication_helpers.wait_for(  # on a busy machine, a follower may leave the ISR for a moment
        "an acknowledged record", lambda: error_of(ask(leader, "alone", b"safe", ACKS_ALL)) is ErrorCode.NONE
    )
    followers = [node for node in cluster.nodes.values() if node is not leader]
    answers: list[ErrorCode] = []
    with paused(*followers):
        asking = threading.Thread(
            target=lambda: answers.append(error_of(ask(leader, "alone", b"unsafe", ACKS_ALL, timeout_ms=2 * LAG_MS)))
        )
        asking.start()
        asking.join()
    assert len(answers) == 1
    assert answers[0] is not ErrorCode.NONE
    replication_helpers.wait_until_in_sync(cluster, [place])
    values = [record.value for record in replication_helpers.read_all(cluster.bootstrap, [place])[place]]
    assert values[0] == b"safe"
    replication_helpers.check_replicas(cluster, [place])
