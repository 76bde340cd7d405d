"""Clients of Confluent's schema registry with Chronik's: those of confluent-kafka, its serializers, and franz-go's.

On a standalone node, and on a cluster whose nodes each register schemas that the other nodes return.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    ServerConfig,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from chronik.testing.broker import Broker
from chronik.testing.cluster import Cluster
from tests.clients.client_catalog import TOOLS

CLUSTER_NODES = 3
READ_TIMEOUT_S = 60.0
AVRO = json.dumps({
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "count", "type": "int", "default": 1},
    ],
})  # fmt: skip
AVRO_WITH_NOTE = AVRO.replace('"default": 1}', '"default": 1}, {"name": "note", "type": "string", "default": ""}')
AVRO_INCOMPATIBLE = AVRO.replace('"default": 1}', '"default": 1}, {"name": "note", "type": "string"}')
JSON_SCHEMA = json.dumps({
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
    "required": ["id"],
})  # fmt: skip


def create_order_message() -> type[Any]:
    """Return the class of a Protobuf message with a nested message and a field of another file."""
    file = descriptor_pb2.FileDescriptorProto(name="chronik/orders.proto", package="chronik.orders", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Order")
    kind = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="id", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    message.field.add(name="counts", number=2, type=kind.TYPE_INT32, label=kind.LABEL_REPEATED)
    message.field.add(
        name="at", number=3, type=kind.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=kind.LABEL_OPTIONAL
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    found: type[Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName("chronik.orders.Order"))
    return found


class RegistrySite:
    """A cluster, and the URLs of its nodes' registries."""

    def __init__(self, bootstrap: str, urls: list[str]) -> None:
        self.bootstrap = bootstrap
        self.urls = urls
        self._open = ExitStack()

    def connect(self, number: int = 0, path: str = "") -> SchemaRegistryClient:
        """Return a new client, with an empty cache, of the registry of a node."""
        return self._open.enter_context(SchemaRegistryClient({"url": self.urls[number % len(self.urls)] + path}))

    def close(self) -> None:
        self._open.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(CLUSTER_NODES) as started:
        yield started


@pytest.fixture(params=["standalone", "cluster"])
def site(request: pytest.FixtureRequest) -> Iterator[RegistrySite]:
    if request.param == "standalone":
        broker: Broker = request.getfixturevalue("chronik_broker")
        found = RegistrySite(broker.bootstrap, [broker.registry_settings()["url"]])
    else:
        started: Cluster = request.getfixturevalue("cluster")
        found = RegistrySite(started.bootstrap, [f"http://{node.http}/registry" for node in started.nodes.values()])
    yield found
    found.close()


@pytest.fixture
def name() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


class SerializedFormat(NamedTuple):
    """A pair of serializer and deserializer, and a value."""

    serializer: Callable[[SchemaRegistryClient, dict[str, Any]], Any]
    deserializer: Callable[[SchemaRegistryClient], Any]
    value: Any


def create_formats() -> dict[str, SerializedFormat]:
    order = create_order_message()
    value = order(id="first-order", counts=[1, 2])
    value.at.FromSeconds(1_700_000_000)
    return {
        "avro": SerializedFormat(
            lambda registry, config: AvroSerializer(registry, AVRO, conf=config),
            lambda registry: AvroDeserializer(registry),
            {"id": "first-order", "price": None, "count": 3},
        ),
        "json": SerializedFormat(
            lambda registry, config: JSONSerializer(JSON_SCHEMA, registry, conf=config),
            lambda registry: JSONDeserializer(None, schema_registry_client=registry),
            {"id": "first-order", "count": 3},
        ),
        "protobuf": SerializedFormat(
            lambda registry, config: ProtobufSerializer(order, registry, conf=config),
            lambda registry: ProtobufDeserializer(order, {}, registry),
            value,
        ),
    }


@pytest.mark.parametrize("in_header", [False, True], ids=["prefix", "header"])
@pytest.mark.parametrize("format", ["avro", "json", "protobuf"])
def test_serialized_value_is_deserialized_with_schema_of_any_node(
    site: RegistrySite, name: str, format: str, in_header: bool
) -> None:
    tested = create_formats()[format]
    config = {"schema.id.serializer": header_schema_id_serializer} if in_header else {}
    registry = site.connect()
    serialize = tested.serializer(registry, config)
    producer = Producer({"bootstrap.servers": site.bootstrap})
    headers: list[tuple[str, bytes]] = []
    context = SerializationContext(name, MessageField.VALUE, headers)
    producer.produce(name, value=serialize(tested.value, context), headers=headers)
    assert producer.flush(READ_TIMEOUT_S) == 0
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([name])
        message = consumer.poll(READ_TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        received = message.value(), SerializationContext(name, MessageField.VALUE, message.headers())
    finally:
        consumer.close()
    assert tested.deserializer(registry)(*received) == tested.value, "with the client that registered the schema"
    for number in range(len(site.urls)):
        assert tested.deserializer(site.connect(number))(*received) == tested.value


def test_registered_versions_are_found_by_all_nodes(site: RegistrySite, name: str) -> None:
    registered = site.connect(0).register_schema_full_response(name, Schema(AVRO, "AVRO"))
    second = site.connect(1).register_schema(name, Schema(AVRO_WITH_NOTE, "AVRO"))
    assert second > registered.schema_id
    for number in range(len(site.urls)):
        client = site.connect(number)
        assert name in client.get_subjects()
        assert client.get_versions(name) == [1, 2]
        assert client.get_latest_version(name).schema_id == second
        assert client.get_version(name, 1).schema.schema_str is not None
        assert client.lookup_schema(name, Schema(AVRO, "AVRO")).version == 1
        assert json.loads(client.get_schema(registered.schema_id).schema_str or "") == json.loads(AVRO)
        assert client.get_schema_by_guid(registered.guid).schema_type == "AVRO"
        assert client.register_schema(name, Schema(AVRO, "AVRO")) == registered.schema_id


def test_compatibility_is_checked_and_configured(site: RegistrySite, name: str) -> None:
    client = site.connect()
    client.register_schema(name, Schema(AVRO, "AVRO"))
    assert client.test_compatibility(name, Schema(AVRO_WITH_NOTE, "AVRO"))
    assert not client.test_compatibility(name, Schema(AVRO_INCOMPATIBLE, "AVRO"))
    with pytest.raises(SchemaRegistryError) as raised:
        client.register_schema(name, Schema(AVRO_INCOMPATIBLE, "AVRO"))
    assert (raised.value.http_status_code, raised.value.error_code) == (409, 409)
    client.set_compatibility(name, "NONE")
    assert site.connect(1).get_compatibility(name) == "NONE"
    assert client.register_schema(name, Schema(AVRO_INCOMPATIBLE, "AVRO"))
    client.set_config(name, ServerConfig(ConfigCompatibilityLevel.FULL, compatibility_group="version"))
    config = site.connect(2).get_config(name)
    assert (config.compatibility_level, config.compatibility_group) == ("FULL", "version")
    assert client.get_config().compatibility_level == "BACKWARD"


def test_metadata_and_rules_are_stored(site: RegistrySite, name: str) -> None:
    metadata = Metadata(None, MetadataProperties({"owner": "team"}), [])
    rule = Rule(
        "check", "", RuleKind.CONDITION, RuleMode.WRITE, "CEL", None, None, "size(message.id) > 0", None, None, False
    )
    site.connect().register_schema(name, Schema(AVRO, "AVRO", [], metadata, RuleSet(None, [rule])))
    found = site.connect(1).get_latest_with_metadata(name, {"owner": "team"})
    assert found.version == 1
    assert found.schema.metadata == metadata
    assert found.schema.rule_set is not None
    assert [each.expr for each in found.schema.rule_set.domain_rules or ()] == [rule.expr]
    with pytest.raises(SchemaRegistryError) as raised:
        site.connect().get_latest_with_metadata(name, {"owner": "other"})
    assert raised.value.http_status_code == 404


def test_referenced_version_is_protected_until_references_are_deleted(site: RegistrySite, name: str) -> None:
    client = site.connect()
    client.register_schema(name, Schema(AVRO, "AVRO"))
    referring = json.dumps({"type": "array", "items": "Order"})
    reference = SchemaReference("Order", name, 1)
    client.register_schema(f"{name}-list", Schema(referring, "AVRO", [reference]))
    found = site.connect(1).get_latest_version(f"{name}-list")
    assert found.schema.references == [reference]
    with pytest.raises(SchemaRegistryError) as raised:
        client.delete_subject(name)
    assert raised.value.error_code == 42206
    for permanent in (False, True):
        assert client.delete_subject(f"{name}-list", permanent=permanent) == [1]
    for permanent in (False, True):
        assert client.delete_version(name, 1, permanent=permanent) == 1
    with pytest.raises(SchemaRegistryError) as raised:
        site.connect(2).get_versions(name)
    assert raised.value.error_code == 40401


def test_schemas_of_context_are_separate(site: RegistrySite, name: str) -> None:
    client = site.connect(path=f"/contexts/.{name}")
    assert client.register_schema(name, Schema(AVRO, "AVRO")) == 1
    assert client.get_subjects() == [f":.{name}:{name}"]
    assert name not in site.connect().get_subjects()
    assert site.connect(1).get_latest_version(f":.{name}:{name}").schema_id == 1


def test_franz_go_client_works(site: RegistrySite) -> None:
    reason = TOOLS / "missing" / "franz-go"
    program = TOOLS / "go" / "registry"
    if reason.exists() or not program.exists():
        pytest.skip(reason.read_text().strip() if reason.exists() else "run tools/clients/setup franz-go")
    completed = subprocess.run(
        [program, site.urls[-1]], capture_output=True, text=True, timeout=READ_TIMEOUT_S, check=False
    )
    assert completed.returncode == 0, completed.stderr
    found = json.loads(completed.stdout)
    subject, created = "franz-go-value", found["created"]
    assert sorted(found["types"]) == ["AVRO", "JSON", "PROTOBUF"]
    assert (created["subject"], created["version"]) == (subject, 1)
    assert found["created again"] == found["looked up"] == created
    assert found["text by id"] == found["by id"]["schema"] == created["schema"]
    assert found["subjects by id"] == found["subjects"] == [subject]
    assert found["versions by id"] == [{"subject": subject, "version": 1}]
    assert not found["incompatible"]["is_compatible"]
    assert (found["incompatible registration"], found["read-only registration"]) == (409, 42205)
    assert (found["second"]["version"], found["latest"], found["all"], found["versions"]) == (2, 2, 2, [1, 2])
    assert (found["referring"], found["references"]) == (1, 1)
    assert (found["protobuf"], found["json"]) == ("PROTOBUF", "JSON")
    assert (found["level"], found["level after reset"], found["global level"]) == ("FULL_TRANSITIVE", 40408, "BACKWARD")
    assert found["mode"] == "READONLY"
    assert (found["in context"], found["contexts"]) == (":.franz:orders", [".franz"])
    assert found["deleted"] == found["deleted permanently"] == [1, 2]
    assert found["deleted versions"] == 40401
