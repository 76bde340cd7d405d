"""Tests of landing keys and values that name the schemas of their writers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from chronik.formats.encoding import build_prefix
from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline.landing.settings import TableSettings, parse_table_settings
from chronik.testing import Broker
from tests.formats.http_registry import HttpRegistry
from tests.pipeline.landing.landed_topic import LandedTopic
from tests.pipeline.table_fixtures import JournalledTopic

AVRO = parse_table_settings("avro")


def record(*fields: dict[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, type: Any, **options: Any) -> dict[str, Any]:
    return {"name": name, "type": type, **options}


def encode_avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


class TypedTopic(LandedTopic):
    """A topic with typed values, and the registry of their schemas."""

    registry: HttpRegistry

    def frame(self, schema: Any, value: Any, subject: str = "orders-value") -> bytes:
        """Encode a value in Avro, with the id of its schema."""
        return build_prefix(self.registry.add(subject, schema)) + encode_avro(schema, value)

    def send_avro(self, schema: Any, *values: Any) -> None:
        self.send(*(self.frame(schema, value) for value in values))

    def landing(self, **options: Any) -> Any:
        options.setdefault("table_settings", AVRO)
        return super().landing(registry=RegistrySettings(self.registry.url, timeout_s=2.0), **options)


@pytest.fixture
def landed(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> Iterator[TypedTopic]:
    registry = HttpRegistry()
    with chronik_broker.cluster() as cluster:
        topic = TypedTopic(JournalledTopic(chronik_broker, chronik_topic), cluster, tmp_path)
        topic.registry = registry
        yield topic
    registry.stop()


def test_avro_values_land_in_typed_columns(landed: TypedTopic) -> None:
    schema = record(field("id", "int"), field("name", ["null", "string"], default=None))
    landed.send_avro(schema, {"id": 1, "name": "a"}, {"id": 2, "name": None})
    result = landed.land()
    assert (result.rows, result.dead_letters) == (2, 0)
    assert landed.rows() == [{"id": 1, "name": "a"}, {"id": 2}]


def test_field_added_by_a_later_version_gets_a_column(landed: TypedTopic) -> None:
    landed.send_avro(record(field("id", "int")), {"id": 1})
    landed.land()
    landed.send_avro(record(field("id", "int"), field("new", "string", default="x")), {"id": 2, "new": "n"})
    landed.send_avro(record(field("id", "int")), {"id": 3})
    landed.land()
    assert landed.rows() == [{"id": 1}, {"id": 2, "new": "n"}, {"id": 3}]


def test_unreachable_registry_fails_the_round_and_loses_nothing(landed: TypedTopic) -> None:
    landed.send_avro(record(field("id", "int")), {"id": 1})
    landed.registry.stop()
    with pytest.raises(Exception, match="registry"):
        landed.land()
    landed.registry.start()
    assert landed.land().rows == 1
    assert landed.dead_letters() == []
    assert json.dumps(landed.rows()) == '[{"id": 1}]'
    assert TableSettings() == TableSettings()
