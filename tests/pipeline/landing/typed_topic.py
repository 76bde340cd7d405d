"""A topic with Avro values, and the registry of their schemas."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from chronik.client.records import OutgoingRecord
from chronik.formats.encoding import build_prefix
from chronik.formats.registry_client import RegistrySettings, get_registry_client
from chronik.pipeline.landing.settings import parse_table_settings
from chronik.pipeline.landing.topic_landing import TopicLanding
from tests.formats.http_registry import HttpRegistry
from tests.pipeline.landing.landed_topic import LandedTopic

AVRO = parse_table_settings("avro")


def record(*fields: dict[str, Any], name: str = "Order") -> dict[str, Any]:
    """Return the Avro schema of a record."""
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, type: Any, **options: Any) -> dict[str, Any]:
    """Return a field of an Avro record."""
    return {"name": name, "type": type, **options}


def encode_avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


class TypedTopic(LandedTopic):
    """A topic with typed values, and the registry of their schemas."""

    registry: HttpRegistry

    def close(self) -> None:
        """Stop the registry, and close the connections of the clients in this process."""
        for settings in (self.registry_settings, RegistrySettings(self.registry.url)):
            get_registry_client(settings).close()
        self.registry.stop()

    @property
    def registry_settings(self) -> RegistrySettings:
        return RegistrySettings(self.registry.url, timeout_s=2.0)

    def frame(self, schema: Any, value: Any, subject: str = "orders-value") -> bytes:
        """Encode a value in Avro, with the id of its schema."""
        return build_prefix(self.registry.add(subject, json.dumps(schema))) + encode_avro(schema, value)

    def send_avro(self, schema: Any, *values: Any) -> None:
        self.send(*(self.frame(schema, value) for value in values))

    def send_records(self, *records: OutgoingRecord) -> None:
        self.topic.send(records)

    def landing(self, **options: Any) -> TopicLanding:
        options.setdefault("table_settings", AVRO)
        return super().landing(**{"registry": self.registry_settings} | options)
