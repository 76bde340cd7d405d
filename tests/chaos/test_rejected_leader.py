"""A firewall isolates the leader of all partitions from the other nodes, with resets, but not from its clients.

The clients, which are connected to it only, learn that it is no longer the leader and find the new leaders in seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Message, Producer

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.chaos import partition_states
from tests.chaos.clients import wait_for
from tests.chaos.cluster import ChaosCluster
from tests.chaos.history import Place
from tests.chaos.network import Barrier, directions_between, namespaces_unavailable_reason

NO_NETWORK = namespaces_unavailable_reason()
pytestmark = [
    pytest.mark.skipif(NO_NETWORK is not None, reason=f"no network namespaces: {NO_NETWORK}"),
    pytest.mark.xdist_group("cluster"),
]

TOPIC, LEADER = "t", 1
PLACES = [Place(TOPIC, partition) for partition in range(3)]

FOUND_SECONDS_MAX = 10.0
"""A session of 3 s, an election and the clients' backoff take five seconds, more on a busy machine. With librdkafka's
defaults, a client that believes in an old leader keeps asking the same node."""

RECORD_SECONDS_MAX = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ChaosCluster]:
    cluster = ChaosCluster(3, tmp_path, has_network=True, started=lambda node, at: None)
    with closing(cluster) as made, made.in_client_namespace():
        made.start()
        made.wait_until_ready()
        _create(made)
        yield made


def _create(cluster: ChaosCluster) -> None:
    assignments = [
        CreatableReplicaAssignment(partition_index=place.partition, broker_ids=[LEADER, 2, 3]) for place in PLACES
    ]
    topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments)
    with cluster.nodes[LEADER].cluster() as client:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        answer = client.controller().request(request, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE


@contextmanager
def rejected(cluster: ChaosCluster) -> Iterator[None]:
    """Reject the leader of all partitions by the firewall of the other nodes during the block."""
    everyone = list(cluster.nodes.values())
    assert wait_for(lambda: all(_leaders(cluster, node.node_id) == {LEADER} for node in everyone), 60)
    ways = directions_between([LEADER], [node.node_id for node in everyone if node.node_id != LEADER])
    with cluster.network.imposed(dict.fromkeys(ways, Barrier.REJECTS)):
        yield


def _leaders(cluster: ChaosCluster, node_id: int) -> set[int]:
    return {each.leader for each in partition_states.read_partition_states(cluster.nodes[node_id], [TOPIC]).values()}


def test_librdkafka_finds_new_leaders(cluster: ChaosCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    send(producer)
    with rejected(cluster):
        took_s = send(producer)
    assert took_s < FOUND_SECONDS_MAX


def send(producer: Producer) -> float:
    """Send a record to every partition and return the time until all are acknowledged."""
    settled: list[KafkaError | None] = []

    def settle(error: KafkaError | None, message: Message) -> None:
        settled.append(error)

    began = time.monotonic()
    for place in PLACES:
        producer.produce(TOPIC, b"x", partition=place.partition, on_delivery=settle)
    producer.flush(RECORD_SECONDS_MAX)
    assert settled == [None] * len(PLACES)
    return time.monotonic() - began


def test_aiokafka_finds_new_leaders(cluster: ChaosCluster) -> None:
    async def scenario() -> float:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
        await producer.start()
        try:
            await asyncio.gather(*(producer.send_and_wait(TOPIC, b"x", partition=each.partition) for each in PLACES))
            with rejected(cluster):
                began = time.monotonic()
                sent = (producer.send_and_wait(TOPIC, b"x", partition=each.partition) for each in PLACES)
                await asyncio.wait_for(asyncio.gather(*sent), RECORD_SECONDS_MAX)
                return time.monotonic() - began
        finally:
            await producer.stop()

    assert asyncio.run(scenario()) < FOUND_SECONDS_MAX
