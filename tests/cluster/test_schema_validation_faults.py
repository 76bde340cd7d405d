"""Three nodes validate schemas of records under kills, pauses and partitions: only valid records are appended."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.formats.encoding import build_prefix
from chronik.testing.cluster import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.linearizability.faults import choose_faults
from tests.linearizability.registry_clients import RegistryConnection, UnknownOutcome, build_schema
from tests.run_size import SEED, sized

pytestmark = pytest.mark.xdist_group("cluster")

TOPIC = "validated"
PARTITIONS = 3
FAULTS = sized(2, 30)
RECORDS_PER_PHASE = 10
"""Valid records that are delivered before a fault, during it, and after it; and as many that are rejected."""

UNREGISTERED = 10**6
"""An id that no schema has."""

DELIVERY_SECONDS = 120
PACE_SECONDS = 0.02
"""Pause of a client after each record, so that the nodes have time for their own requests."""

GOOD, BAD = b"\x02good-", b"\x02bad-"


class _Client(threading.Thread):
    """A thread that produces one record after the other, and counts the error codes of their delivery reports."""

    def __init__(self, cluster: Cluster, **config: object) -> None:
        super().__init__()
        self._cluster = cluster
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "linger.ms": 0,
                "socket.timeout.ms": 5000,
                "message.timeout.ms": 1000 * DELIVERY_SECONDS,
                **config,
            }
        )
        self._stopping = threading.Event()
        self.codes: Counter[int | None] = Counter()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for number in count():
                if self._stopping.wait(PACE_SECONDS):
                    return
                self._deliver(number % PARTITIONS, self.build_value(number))
        except BaseException as error:
            self.failure = error

    def build_value(self, number: int) -> bytes:
        raise NotImplementedError

    def _deliver(self, partition: int, value: bytes) -> None:
        codes: list[int | None] = []
        self._producer.produce(
            TOPIC,
            value,
            partition=partition,
            on_delivery=lambda error, _: codes.append(None if error is None else error.code()),
        )
        assert self._producer.flush(2 * DELIVERY_SECONDS) == 0
        self.codes.update(codes)

    def stop(self) -> None:
        self._stopping.set()
        self.join()


class _ValidClient(_Client):
    """A client that registers a schema for each record, through any node, immediately before it produces the record."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        super().__init__(cluster, **{"enable.idempotence": True})
        self._chance = random.Random(seed)
        self._connections = [RegistryConnection(node.http, 2.0) for node in cluster.nodes.values()]

    def stop(self) -> None:
        super().stop()
        for connection in self._connections:
            connection.close()

    def build_value(self, number: int) -> bytes:
        return build_prefix(self._register(number)) + GOOD + str(number).encode()

    def _register(self, number: int) -> int:
        while True:
            connection = self._chance.choice(self._connections)
            try:
                found = connection.send("POST", f"/subjects/{TOPIC}-value/versions", {"schema": build_schema(number)})
            except (UnknownOutcome, ConnectionRefusedError):
                connection.close()
                continue
            schema_id: int = found["id"]
            return schema_id


class _InvalidClient(_Client):
    """A client that produces records with schemas that do not exist."""

    def build_value(self, number: int) -> bytes:
        return build_prefix(UNREGISTERED + number) + BAD + str(number).encode()


def wait_for_records(cluster: Cluster, clients: list[_Client]) -> None:
    enough = [client.codes.total() + RECORDS_PER_PHASE for client in clients]

    def missing() -> str | None:
        for client in clients:
            if client.failure is not None:
                raise client.failure
        found = [client.codes.total() for client in clients]
        return None if all(map(int.__ge__, found, enough)) else f"{found} of {enough} records"

    cluster.wait_until(missing, "delivery reports", 300)


def read_values(cluster: Cluster) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "checks", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    values: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(DELIVERY_SECONDS)
        assert message is not None
        error = message.error()
        if error is None:
            values.append(message.value()[5:])
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
    consumer.close()
    return values


def test_only_valid_records_are_appended_under_faults(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory(links=True)
    with ClusterClient(cluster.bootstrap) as client:
        configs = {"confluent.value.schema.validation": "true"}
        create_topics(client, [NewTopic(TOPIC, PARTITIONS, 3, configs=configs)])
    chance = random.Random(SEED)
    valid, invalid = _ValidClient(cluster, SEED), _InvalidClient(cluster)
    clients: list[_Client] = [valid, invalid]
    names: Counter[str] = Counter()
    for each in clients:
        each.start()
    try:
        for fault in choose_faults(FAULTS, chance):
            wait_for_records(cluster, clients)
            with fault.befall(cluster, fault.victim(cluster, chance)):
                wait_for_records(cluster, clients)
            cluster.wait_until_ready()
            wait_for_records(cluster, clients)
            names[str(fault)] += 1
    finally:
        for each in clients:
            each.stop()
    assert valid.codes.keys() == {None}
    assert invalid.codes.keys() == {KafkaError.INVALID_RECORD}
    values = Counter(read_values(cluster))
    assert not [value for value in values if not value.startswith(GOOD)]
    assert values == Counter(GOOD + str(number).encode() for number in range(valid.codes[None]))
    record_property(
        "summary",
        f"{valid.codes.total()} valid records appended and {invalid.codes.total()} invalid ones rejected over"
        f" {FAULTS} faults ({', '.join(sorted(names))})",
    )
