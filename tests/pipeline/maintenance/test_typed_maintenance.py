"""Tests of rebuilding, replaying, compacting and auditing tables with typed values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.formats.encoding import build_prefix
from chronik.formats.framing import VALUE_HEADER
from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline.audit import audit
from chronik.pipeline.audit.report import AuditReport
from chronik.pipeline.landing.settings import parse_table_settings
from chronik.pipeline.maintenance.rebuild import RebuildSource, rebuild_table
from chronik.pipeline.maintenance.replay import ReplayFailedError, replay
from chronik.pipeline.spark.tasks import run_locally
from chronik.pipeline.tables.values.table_schema import parse_schema_document
from chronik.testing import Broker
from tests.formats.http_registry import HttpRegistry
from tests.pipeline.landing.test_topic_landing import delete_records_before
from tests.pipeline.landing.typed_topic import TypedTopic, encode_avro, field, record
from tests.pipeline.maintenance.test_replay import values
from tests.pipeline.table_fixtures import JournalledTopic, compact_table, read_rows

ITEM = record(field("sku", "string"), field("price", "float"), name="Item")
ORDER = record(
    field("id", "int"),
    field("name", ["null", "string"], default=None),
    field("items", {"type": "array", "items": ITEM}),
    field("tags", {"type": "map", "values": "string"}),
    field("at", {"type": "long", "logicalType": "timestamp-millis"}),
    field("ratio", "double"),
    field("raw", "bytes"),
)
ORDER_2 = record(field("number", "long", aliases=["id"]), *ORDER["fields"][1:], field("kind", "string", default="x"))


def order(id: int, **other: Any) -> dict[str, Any]:
    return {
        "id": id,
        "name": None if id % 2 else f"n{id}",
        "items": [{"sku": f"s{each}", "price": 0.1 * each} for each in range(id % 3)],
        "tags": {"a": "b"} if id % 2 else {},
        "at": 1_700_000_000_000 + id,
        "ratio": [0.1, math.inf, -0.0][id % 3],
        "raw": bytes([id % 256]),
    } | other


def order_2(id: int, **other: Any) -> dict[str, Any]:
    value = order(id, **other)
    return {"number": value.pop("id"), "kind": "k"} | value


@pytest.fixture
def landed(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> Iterator[TypedTopic]:
    with chronik_broker.cluster() as cluster:
        topic = TypedTopic(JournalledTopic(chronik_broker, chronik_topic), cluster, tmp_path / "tables")
        topic.registry = HttpRegistry()
        yield topic
        topic.close()


def land_versions(landed: TypedTopic) -> list[bytes | None]:
    """Land values of two versions of a schema, a value that does not fit, and a tombstone; return them."""
    misfit = record(field("id", "string"), name="Order")
    sent: list[bytes | None] = [landed.frame(ORDER, order(number)) for number in range(6)]
    landed.send(*sent)
    landed.land()
    later = [
        *(landed.frame(ORDER_2, order_2(number)) for number in range(6, 9)),
        landed.frame(misfit, {"id": "x"}),
        None,
    ]
    landed.send(*later)
    landed.land()
    return [*sent, *later]


def run_audit(landed: TypedTopic, **options: Any) -> AuditReport:
    broker = landed.topic.broker
    report: AuditReport = audit(
        [broker.data_dir],
        bootstrap=broker.bootstrap,
        table_root=landed.root,
        topics=[landed.topic.name],
        tasks=run_locally,
        **{"registry": landed.registry_settings} | options,
    )
    return report


# Rebuild


@pytest.mark.parametrize("source", list(RebuildSource))
def test_rebuilt_typed_table_has_the_same_rows(landed: TypedTopic, source: RebuildSource) -> None:
    land_versions(landed)
    before = landed.rows()
    result = rebuild_table(
        landed.root,
        landed.topic.name,
        bootstrap=landed.topic.broker.bootstrap,
        source=source,
        registry=landed.registry_settings,
    )
    assert (result.source, result.rows) == (source, 11)
    assert repr(landed.rows()) == repr(before)
    assert run_audit(landed).findings == []


@pytest.mark.parametrize("source", list(RebuildSource))
def test_rebuild_applies_a_declared_schema_to_typed_values(landed: TypedTopic, source: RebuildSource) -> None:
    land_versions(landed)
    schema = parse_schema_document({"unknown_fields": "rescue", "columns": {"id": "string", "name": "string"}})
    rebuild_table(
        landed.root,
        landed.topic.name,
        schema,
        bootstrap=landed.topic.broker.bootstrap,
        source=source,
        registry=landed.registry_settings,
    )
    rows = landed.rows()
    assert [row.get("id") for row in rows][-2:] == ["x", None]
    assert rows[2]["name"] == "n2"
    assert '"id":2' in rows[2]["_rescued"]
    assert run_audit(landed).findings == []


def test_table_is_rebuilt_from_rows_after_retention(landed: TypedTopic) -> None:
    land_versions(landed)
    before = landed.rows()
    delete_records_before(landed.cluster, TopicPartition(landed.topic.name, 0), 4)
    landed.registry.stop()
    result = rebuild_table(landed.root, landed.topic.name, bootstrap=landed.topic.broker.bootstrap)
    assert result.source is RebuildSource.ROWS
    assert repr(landed.rows()) == repr(before)
    landed.registry.start()


# Replay


def test_replay_encodes_values_with_the_schemas_of_their_writers(landed: TypedTopic) -> None:
    sent = land_versions(landed)
    id = landed.registry.add("orders-value", '"string"')
    landed.send_records(
        OutgoingRecord(encode_avro("string", "in header"), partition=0, headers=((VALUE_HEADER, build_prefix(id)),))
    )
    landed.land()
    broker, target = landed.topic.broker, f"{landed.topic.name}-again"
    done = replay(
        landed.topic.name,
        target,
        bootstrap=broker.bootstrap,
        table_root=landed.root,
        create=True,
        registry=landed.registry_settings,
    )
    assert done.records == 12
    assert values(broker, target) == {0: [*sent, encode_avro("string", "in header")]}


def test_replay_of_an_incomplete_row_names_its_offset(landed: TypedTopic) -> None:
    landed.send_avro(ORDER, order(1))
    schema = parse_schema_document({"unknown_fields": "drop", "columns": {"name": "string"}})
    landed.land(schema=schema)
    with pytest.raises(ReplayFailedError, match=r"offset 0: .*id"):
        replay(
            landed.topic.name,
            f"{landed.topic.name}-again",
            bootstrap=landed.topic.broker.bootstrap,
            table_root=landed.root,
            create=True,
            registry=landed.registry_settings,
        )


@pytest.mark.parametrize("source", list(RebuildSource))
def test_null_of_a_record_type_survives_rebuild_and_replay(landed: TypedTopic, source: RebuildSource) -> None:
    nullable = ["null", record(field("id", ["null", "int"]))]
    sent = [*(landed.frame(nullable, form) for form in (None, {"id": None}, {"id": 1})), None]
    landed.send(*sent)
    landed.land()
    assert landed.rows() == [{"_rescued": "null"}, {}, {"id": 1}, {}]
    broker, target = landed.topic.broker, f"{landed.topic.name}-again"
    options: Any = {"bootstrap": broker.bootstrap, "registry": landed.registry_settings}
    rebuild_table(landed.root, landed.topic.name, source=source, **options)
    assert landed.rows() == [{"_rescued": "null"}, {}, {"id": 1}, {}]
    assert run_audit(landed).findings == []
    replay(landed.topic.name, target, table_root=landed.root, create=True, **options)
    assert values(broker, target) == {0: sent}


# Compaction


def test_compacted_typed_table_has_the_same_rows(landed: TypedTopic) -> None:
    land_versions(landed)
    before = landed.rows()
    compact_table(landed.uri)
    assert len(landed.open().snapshot().file_uris) == 1
    assert repr(landed.rows()) == repr(before)
    assert run_audit(landed).findings == []


# Audit


def test_audit_passes_for_typed_keys_and_values(landed: TypedTopic) -> None:
    settings = parse_table_settings("avro", key_format="avro")
    key, key_2 = record(field("id", "int"), name="Key"), record(field("id", "int"), field("x", "int"), name="Key")
    for schema, form in ((key, {"id": 1}), (key_2, {"id": 1, "x": 2})):
        landed.send_records(
            OutgoingRecord(landed.frame(ORDER, order(1)), key=landed.frame(schema, form), partition=0),
            OutgoingRecord(b"?", key=landed.frame(schema, form), partition=0),
        )
        landed.land(table_settings=settings)
    report = run_audit(landed, registry=landed.registry_settings)
    assert (report.findings, report.unchecked, report.rows) == ([], [], 4)


def test_audit_compares_decoded_values(landed: TypedTopic) -> None:
    land_versions(landed)
    (file,) = [uri for uri in landed.open().snapshot().file_uris if len(pq.read_table(uri)) == 6]
    path = file.removeprefix("file://")
    rows = pq.ParquetFile(path).read()
    changed = rows.set_column(rows.schema.get_field_index("ratio"), "ratio", pa.array([0.5] * 6))
    pq.write_table(changed, path)
    report = run_audit(landed)
    assert [finding.offset for finding in report.findings] == list(range(6))
    assert "column ratio of the row at offset 0 differs from the value of its record" in report.findings[0].says


def land_json_keys(landed: TypedTopic) -> None:
    settings = parse_table_settings("json", key_format="json")
    for key in (b'{"id": 1}', b'{"id": 2, "region": {"name": "eu"}}', b'{"id": "x"}'):
        landed.send_records(OutgoingRecord(b'{"a": 1}', key=key, partition=0))
        landed.land(table_settings=settings)


def test_audit_compares_decoded_keys(landed: TypedTopic) -> None:
    land_json_keys(landed)
    assert run_audit(landed).findings == []
    (path,) = [
        uri.removeprefix("file://")
        for uri in landed.open().snapshot().file_uris
        if pq.read_table(uri)["_offset"].to_pylist() == [1]
    ]
    rows = pq.ParquetFile(path).read()
    index = rows.schema.get_field_index("_key_value")
    changed = rows["_key_value"].to_pylist()[0] | {"id": 5}
    pq.write_table(
        rows.set_column(index, rows.schema.field(index), pa.array([changed], rows.schema.types[index])), path
    )
    (finding,) = run_audit(landed).findings
    assert "column _key_value of the row at offset 1 differs from the key of its record" in finding.says


@pytest.mark.parametrize("source", list(RebuildSource))
def test_rebuilt_table_has_the_same_json_keys(landed: TypedTopic, source: RebuildSource) -> None:
    def read_keys() -> list[Any]:
        keys: list[Any] = read_rows(landed.open().snapshot()).sort_by("_offset")["_key_value"].to_pylist()
        return keys

    land_json_keys(landed)
    before = read_keys()
    assert before[1] == {"id": 2, "region": {"name": "eu"}}
    rebuild_table(landed.root, landed.topic.name, bootstrap=landed.topic.broker.bootstrap, source=source)
    assert read_keys() == before
    assert run_audit(landed).findings == []


def test_audit_with_another_registry_reports_the_table_as_unchecked(landed: TypedTopic) -> None:
    land_versions(landed)
    other = HttpRegistry()
    report = run_audit(landed, registry=RegistrySettings(other.url))
    other.stop()
    assert report.findings == []
    assert "the record at offset 0 cannot be decoded as it was" in report.unchecked[0]


def test_audit_without_the_registry_reports_the_table_as_unchecked(landed: TypedTopic) -> None:
    land_versions(landed)
    landed.close()
    without_cached_schemas = RegistrySettings(landed.registry.url, timeout_s=1.0, patience_s=0.1)
    report = run_audit(landed, registry=without_cached_schemas)
    assert report.findings == []
    assert "is not available" in report.unchecked[0]
    landed.registry.start()
