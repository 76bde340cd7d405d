"""The schema registry of a test broker, and records with decoded keys and values."""

from __future__ import annotations

import json
import struct

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from chronik.formats.codec import UndecodableValueError
from chronik.testing import Broker, BrokerFailed, SecuredBroker
from chronik.testing.plugin import BrokerFactory

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}'


def produce(broker: Broker, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, key=key, partition=0)
    assert producer.flush(30) == 0


def serialize(registry: dict[str, str], topic: str, value: object, schema: str = ORDER, field: str = "value") -> bytes:
    with SchemaRegistryClient(registry) as client:
        encoded = AvroSerializer(client, schema)(value, SerializationContext(topic, field))
    assert isinstance(encoded, bytes)
    return encoded


def test_records_are_decoded_with_schemas_of_confluent_serializers(
    chronik_broker: Broker, chronik_topic: str, chronik_registry: dict[str, str]
) -> None:
    value = serialize(chronik_registry, chronik_topic, {"item": "tea"})
    key = serialize(chronik_registry, chronik_topic, "ada", '"string"', MessageField.KEY)
    produce(chronik_broker, chronik_topic, value, None, b"plain", key=key)
    typed, tombstone, plain = chronik_broker.records(chronik_topic, decode=True)
    with SchemaRegistryClient(chronik_registry) as client:
        value_id, key_id = (client.get_latest_version(f"{chronik_topic}-{each}").schema_id for each in ("value", "key"))
    assert (typed.key, typed.key_schema) == ("ada", key_id)
    assert (typed.value, typed.value_schema) == ({"item": "tea"}, value_id)
    assert (typed.topic, typed.partition, typed.offset) == (chronik_topic, 0, 0)
    assert (tombstone.value, tombstone.value_schema) == (None, None)
    assert (plain.value, plain.value_schema) == (b"plain", None)
    assert [record.value for record in chronik_broker.records(chronik_topic)] == [value, None, b"plain"]


def test_undecodable_record_raises_error_with_its_position(
    chronik_broker: Broker, chronik_topic: str, chronik_registry: dict[str, str]
) -> None:
    value = serialize(chronik_registry, chronik_topic, {"item": "tea"})
    produce(chronik_broker, chronik_topic, value, value[:-1])
    with pytest.raises(UndecodableValueError, match=f"{chronik_topic}-0 offset 1: the value cannot be decoded: "):
        chronik_broker.records(chronik_topic, decode=True)


def test_unknown_schema_raises_error(chronik_broker: Broker, chronik_topic: str) -> None:
    produce(chronik_broker, chronik_topic, struct.pack(">BI", 0, 2_000_000_000) + b"x")
    with pytest.raises(UndecodableValueError, match="no schema with id 2000000000"):
        chronik_broker.records(chronik_topic, decode=True)


def test_registry_keeps_url_and_schemas_when_broker_is_restarted(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    settings = broker.registry_settings()
    with SchemaRegistryClient(settings) as client:
        schema_id = client.register_schema("orders-value", Schema(ORDER, "AVRO"))
    assert broker.registry_settings() == settings
    for stop in (broker.stop, broker.kill):
        stop()
        with pytest.raises(BrokerFailed):
            broker.last_requests()
        broker.start()
        with SchemaRegistryClient(settings) as client:
            assert json.loads(client.get_schema(schema_id).schema_str) == json.loads(ORDER)
    assert broker.registry_settings() == settings


def test_brokers_have_separate_registries(chronik_broker_factory: BrokerFactory) -> None:
    settings = [chronik_broker_factory().registry_settings() for _ in range(2)]
    with SchemaRegistryClient(settings[0]) as one, SchemaRegistryClient(settings[1]) as two:
        one.register_schema("orders-value", Schema(ORDER, "AVRO"))
        assert one.get_subjects() == ["orders-value"]
        assert two.get_subjects() == []


def test_configured_registry_port_is_used(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory(http="127.0.0.1:0")
    settings = broker.registry_settings()
    assert settings["url"].endswith("/registry")
    with SchemaRegistryClient(settings) as client:
        assert client.get_subjects() == []


def test_registry_is_not_served_until_it_is_requested(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory(log_level="info")
    assert "registry" not in broker.log


@pytest.mark.chronik_users(alice="wonderland")
def test_registry_of_secured_broker_requires_permissions(chronik_secured_broker: SecuredBroker) -> None:
    broker = chronik_secured_broker
    with SchemaRegistryClient(broker.registry_settings("alice")) as alice:
        with pytest.raises(SchemaRegistryError) as raised:
            alice.register_schema("orders-value", Schema(ORDER, "AVRO"))
        assert raised.value.http_status_code == 403
        broker.allow("alice", "Write", subject="orders-value")
        schema_id = alice.register_schema("orders-value", Schema(ORDER, "AVRO"))
    broker.create_topic("orders")
    broker.allow("alice", "Write", topic="orders")
    producer = Producer(broker.settings("alice"))
    producer.produce("orders", struct.pack(">BI", 0, schema_id) + b"\x06tea")
    assert producer.flush(30) == 0
    assert [record.value for record in broker.records("orders", decode=True)] == [{"item": "tea"}]
