"""Three nodes validate the schemas of produced records, and a backup of them contains the schema registry."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.configs.keys import SUBJECT_NAME_STRATEGIES
from chronik.testing import Broker
from chronik.testing.cluster import Cluster, ClusterNode
from tests.cluster.test_standalone_import import chronik
from tests.run_size import sized

pytestmark = pytest.mark.xdist_group("cluster")

SECONDS = 60
REGISTRATIONS = sized(30, 1000)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        cluster.wait_until_ready()
        yield cluster


@pytest.fixture
def registries(cluster: Cluster) -> Iterator[list[SchemaRegistryClient]]:
    """Return a client of each node's registry."""
    with ExitStack() as stack:
        urls = [f"http://{node.http}/registry" for node in cluster.nodes.values() if isinstance(node, ClusterNode)]
        yield [stack.enter_context(SchemaRegistryClient({"url": url})) for url in urls]


def build_schema(name: str) -> str:
    fields = [{"name": "item", "type": "string"}]
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields})


def create_topic(cluster: Cluster, name: str, partitions: int = 3, **configs: str) -> str:
    with ClusterClient(cluster.bootstrap) as client:
        create_topics(client, [NewTopic(name, partitions, 3, configs=configs)])
    return name


class DeliveringProducer:
    """A producer that waits for the delivery report of each record."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def deliver(self, topic: str, value: bytes, partition: int = 0, headers: Any = None) -> int | None:
        """Produce a record. Return the error code of its delivery report, or None."""
        codes: list[int | None] = []
        self._producer.produce(
            topic,
            value,
            partition=partition,
            headers=headers,
            on_delivery=lambda error, _: codes.append(None if error is None else error.code()),
        )
        assert self._producer.flush(SECONDS) == 0
        (code,) = codes
        return code


def test_schema_is_valid_on_every_leader_once_any_node_has_registered_it(
    cluster: Cluster, registries: list[SchemaRegistryClient]
) -> None:
    topic = create_topic(cluster, "fresh", 3, **{"confluent.value.schema.validation": "true"})
    producer = DeliveringProducer(cluster.bootstrap)
    registries[0].set_compatibility(f"{topic}-value", "NONE")
    for number in range(REGISTRATIONS):
        schema_id = registries[number % 3].register_schema(f"{topic}-value", Schema(build_schema(f"T{number}"), "AVRO"))
        framed = b"\x00" + schema_id.to_bytes(4, "big") + b"\x02x"
        # The leader that handles the request may have a metadata image without the schema.
        assert producer.deliver(topic, framed, partition=number // 3 % 3) is None, number
    assert producer.deliver(topic, b"\x00" + (10**6).to_bytes(4, "big")) == KafkaError.INVALID_RECORD


@pytest.mark.parametrize(
    ("strategy", "build_subject"),
    list(
        zip(
            SUBJECT_NAME_STRATEGIES,
            (topic_subject_name_strategy, record_subject_name_strategy, topic_record_subject_name_strategy),
            strict=True,
        )
    ),
    ids=("topic", "record", "topic and record"),
)
@pytest.mark.parametrize("uses_header", [False, True], ids=["prefix", "header"])
def test_values_of_confluent_serializer_are_valid_under_its_strategy(
    cluster: Cluster, registries: list[SchemaRegistryClient], strategy: str, build_subject: Any, uses_header: bool
) -> None:
    configs = {"confluent.value.schema.validation": "true", "confluent.value.subject.name.strategy": strategy}
    topic = create_topic(cluster, f"typed-{uuid.uuid4().hex}", 1, **configs)
    settings: dict[str, Any] = {"subject.name.strategy": build_subject}
    if uses_header:
        settings["schema.id.serializer"] = header_schema_id_serializer
    headers: list[tuple[str, bytes]] = []
    context = SerializationContext(topic, MessageField.VALUE, headers)
    serialize = AvroSerializer(registries[0], build_schema(f"R{topic[6:]}"), conf=settings)
    value = serialize({"item": "tea"}, context)
    assert value is not None
    producer = DeliveringProducer(cluster.bootstrap)
    assert producer.deliver(topic, value, headers=headers) is None
    assert bool(headers) == uses_header
    assert producer.deliver(topic, json.dumps({"item": "tea"}).encode()) == KafkaError.INVALID_RECORD


def test_restored_node_has_the_schemas_of_the_cluster(
    cluster: Cluster, registries: list[SchemaRegistryClient], tmp_path: Path
) -> None:
    registry = registries[0]
    subject, text = f"saved-{uuid.uuid4().hex}", build_schema("Saved")
    schema_id = registry.register_schema(subject, Schema(text, "AVRO"))
    registry.set_compatibility(subject, "FULL_TRANSITIVE")
    saved = str(tmp_path / "saved")
    backup = chronik("backup", saved, "--bootstrap", cluster.bootstrap)
    assert backup.returncode == 0, backup.stderr
    check = chronik("backup", saved, "--check")
    assert check.returncode == 0, check.stderr
    assert "schema version" in check.stdout
    with Broker() as target:
        restored = chronik("restore", saved, "--bootstrap", target.bootstrap, "--yes")
        assert restored.returncode == 0, restored.stderr
        with SchemaRegistryClient(target.registry_settings()) as client:
            assert client.get_schema(schema_id).schema_str == registry.get_schema(schema_id).schema_str
            assert client.get_version(subject, 1).schema_id == schema_id
            assert client.get_compatibility(subject) == "FULL_TRANSITIVE"
            assert sorted(client.get_subjects()) == sorted(registry.get_subjects())
            new = Schema(build_schema(f"N{subject[6:]}"), "AVRO")
            assert client.register_schema("another", new) > schema_id
