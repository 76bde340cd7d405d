"""Landing and queries of topics with hostile typed values: each costs its own record only."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chronik.formats.codec import ValueFormat
from chronik.formats.encoding import build_prefix
from chronik.formats.framing import encode_message_indexes
from chronik.formats.registry_client import CONFIRMATION_DELAY_SECONDS
from chronik.pipeline.landing.settings import TableSettings, parse_table_settings
from chronik.pipeline.maintenance.dead_letters import list_dead_letters
from chronik.pipeline.query.live_tail import TailScan, read_tail_rows
from chronik.pipeline.query.topic_snapshots import SnapshotReader
from chronik.pipeline.source.options import IsolationLevel, ReadSettings
from chronik.pipeline.tables.layout import TableKind
from chronik.testing import Broker
from tests.abuse.hostile_schemas import build_schemas
from tests.formats.hostile_values import HOSTILE_VALUES
from tests.formats.http_registry import HttpRegistry
from tests.pipeline.landing.typed_topic import TypedTopic
from tests.pipeline.table_fixtures import JournalledTopic
from tests.run_size import sized

UNKNOWN_SCHEMAS = 500
REFERENCES = 200
MESSAGE_TYPES = 500
SCHEMA_SCALE = 20
"""A twentieth of the schemas of `make abuse`: up to 50 kB each."""
CPU_SECONDS_MAX = 20.0
"""Generous: Avro takes two seconds."""

SEEDS = range(sized(2, 50))
MUTATIONS = 200

TYPES = {ValueFormat.AVRO: "AVRO", ValueFormat.JSON_SCHEMA: "JSON", ValueFormat.PROTOBUF: "PROTOBUF"}
ORDERS = {
    ValueFormat.AVRO: (
        '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"},'
        ' {"name": "item", "type": "string"}]}',
        b"\x0e\x06tea",
    ),
    ValueFormat.JSON_SCHEMA: (
        '{"type": "object", "properties": {"id": {"type": "integer"}, "item": {"type": "string"}}, "required": ["id"]}',
        b'{"id":7,"item":"tea"}',
    ),
    ValueFormat.PROTOBUF: (
        'syntax = "proto3"; message Order { int64 id = 1; string item = 2; }',
        b"\x00\x08\x07\x12\x03tea",
    ),
}
"""The schema and an encoded value of an order."""
DECODED = {"id": 7, "item": "tea"}


@pytest.fixture
def landed(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> Iterator[TypedTopic]:
    with chronik_broker.cluster() as cluster:
        topic = TypedTopic(JournalledTopic(chronik_broker, chronik_topic), cluster, tmp_path)
        topic.registry = HttpRegistry()
        yield topic
        topic.close()


def frame_order(landed: TypedTopic, format: ValueFormat) -> bytes:
    schema, payload = ORDERS[format]
    return build_prefix(landed.registry.add("orders", schema, TYPES[format])) + payload


def read_tail_ids(landed: TypedTopic) -> list[int | None]:
    reader = SnapshotReader(landed.cluster, landed.root, registry=landed.registry_settings)
    snapshot = reader.take_snapshots([landed.topic.name])[landed.topic.name]
    read = ReadSettings(landed.topic.broker.bootstrap, isolation=IsolationLevel.READ_COMMITTED)
    tail = TailScan(
        read, snapshot.kind, snapshot.schema, ("id",), (), format=snapshot.format, registry=landed.registry_settings
    )
    (target,) = snapshot.tail
    return [row["id"] for batch in read_tail_rows(tail, target) for row in batch.to_pylist()]


def mutate(value: bytes, chance: random.Random) -> bytes | None:
    """Truncate or extend a framed value, change its magic byte, schema id or other bytes, or replace it."""
    match chance.randrange(8):
        case 0:
            return value[: chance.randrange(len(value))]
        case 1:
            return value + chance.randbytes(chance.randint(1, 9))
        case 2:
            return bytes([chance.randint(1, 255)]) + value[1:]
        case 3:
            return build_prefix(chance.choice([2, 99, 2**31 - 1])) + value[5:]
        case 4:
            return value[:5] + chance.randbytes(chance.randrange(40))
        case 5:
            return chance.choice([None, b"", b"\x00", b"\x01" + bytes(16), value[:5]])
        case _:
            position = chance.randrange(5, len(value))
            return value[:position] + bytes([chance.choice([0, 0x7F, 0x80, 0xFF])]) + value[position + 1 :]


@pytest.mark.parametrize("format", TYPES)
def test_hostile_values_land_as_rows_or_dead_letter_records(landed: TypedTopic, format: ValueFormat) -> None:
    settings = parse_table_settings(format.value)
    order = frame_order(landed, format)
    landed.send(order)
    landed.land(table_settings=settings)
    hostile = [value for value in HOSTILE_VALUES.values() if value.format is format]
    sent = [order]
    for value in hostile:
        prefix = build_prefix(landed.registry.add("orders", value.schema, TYPES[format]))
        payload = (b"\x00" if format is ValueFormat.PROTOBUF else b"") + value.build(16 * 1024)
        sent += [prefix + payload, prefix + payload[: len(payload) // 2], order]
    landed.send(*sent)
    assert read_tail_ids(landed).count(7) == len(hostile) + 1
    check_landing(landed, len(sent), len(hostile) + 1, settings)


def add_reference_bomb(registry: HttpRegistry) -> int:
    """Register schemas, each of which refers to the previous one twice, and to itself. Return the id of the last."""
    references: list[dict[str, Any]] = []
    for number in range(REFERENCES):
        subject = f"item-{number}"
        own = [{"name": f"Self{number}", "subject": subject, "version": 1}]
        fields = [{"name": each["name"].lower(), "type": each["name"]} for each in references]
        schema = {"type": "record", "name": f"Item{number}", "fields": fields}
        id = registry.add(subject, json.dumps(schema), references=references + own)
        names = (f"Item{number}", f"Other{number}")
        references = [{"name": name, "subject": subject, "version": 1} for name in names]
    return id


@pytest.mark.parametrize("format", TYPES)
def test_values_with_hostile_schemas_do_not_affect_other_records(landed: TypedTopic, format: ValueFormat) -> None:
    settings = parse_table_settings(format.value)
    order = frame_order(landed, format)
    landed.send(order)
    landed.land(table_settings=settings)
    schemas = [each.text for each in build_schemas(SCHEMA_SCALE).values() if each.schema_type == TYPES[format]]
    schemas += ["", "null", "{", "\x00", "1e999999"]
    ids = [landed.registry.add("orders", schema, TYPES[format]) for schema in schemas]
    if format is ValueFormat.AVRO:
        ids.append(add_reference_bomb(landed.registry))
    sent = [order]
    for id in ids:
        sent += [build_prefix(id) + bytes(20), order]
    landed.send(*sent)
    started = time.process_time()
    check_landing(landed, len(sent), len(ids) + 1, settings)
    assert time.process_time() - started < CPU_SECONDS_MAX


def check_landing(landed: TypedTopic, sent: int, orders: int, settings: TableSettings) -> None:
    """Land a round. Check that each record is a row or a dead-letter record, and that the orders are rows."""
    earlier = len(landed.rows())
    result = landed.land(table_settings=settings)
    assert result.rows + result.dead_letters == sent
    rows = landed.rows()[earlier:]
    assert [row for row in rows if row.get("id") == 7] == [DECODED] * orders
    letters = list_dead_letters(landed.root, [landed.topic.name]).letters
    assert len(letters) == result.dead_letters
    assert all(letter.error and "\n" not in letter.error for letter in letters)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("format", TYPES)
def test_mutated_values_do_not_affect_other_records(landed: TypedTopic, format: ValueFormat, seed: int) -> None:
    settings = parse_table_settings(format.value)
    order = frame_order(landed, format)
    landed.send(order)
    landed.land(table_settings=settings)
    chance = random.Random(seed)
    mutated = [mutate(order, chance) for _ in range(MUTATIONS)]
    landed.send(*(each for value in mutated for each in (value, order)))
    assert read_tail_ids(landed).count(7) >= MUTATIONS
    earlier = landed.rows()
    result = landed.land(table_settings=settings)
    assert result.rows + result.dead_letters == 2 * MUTATIONS
    assert result.dead_letters
    by_offset = dict(zip(landed.offsets(), landed.rows(), strict=True))
    assert [by_offset[len(earlier) + 2 * number + 1] for number in range(MUTATIONS)] == [DECODED] * MUTATIONS


def test_records_with_different_unknown_schemas_do_not_stall_landing(landed: TypedTopic) -> None:
    order = frame_order(landed, ValueFormat.AVRO)
    landed.send(order, *(build_prefix(100 + number) + b"x" for number in range(UNKNOWN_SCHEMAS)), order)
    started = time.monotonic()
    result = landed.land()
    assert (result.rows, result.dead_letters) == (2, UNKNOWN_SCHEMAS)
    # Confirming them one by one takes a delay for each.
    assert time.monotonic() - started < UNKNOWN_SCHEMAS * CONFIRMATION_DELAY_SECONDS / 2


def test_records_with_different_message_types_of_a_large_schema_do_not_stall_landing(landed: TypedTopic) -> None:
    settings = parse_table_settings("protobuf")
    order = frame_order(landed, ValueFormat.PROTOBUF)
    landed.send(order)
    landed.land(table_settings=settings)
    fields = " ".join(f"int32 f{number} = {number};" for number in range(1, 3000))
    id = landed.registry.add("orders", f'syntax = "proto3"; message Large {{ {fields} }}', "PROTOBUF")
    sent = [build_prefix(id) + encode_message_indexes((number,)) for number in range(1, MESSAGE_TYPES)]
    landed.send(*sent, order)
    started = time.process_time()
    result = landed.land(table_settings=settings)
    assert (result.rows, result.dead_letters) == (1, len(sent))
    # Parsing the schema for each record takes twice as long.
    assert time.process_time() - started < 0.005 * MESSAGE_TYPES


def test_binary_values_that_seem_to_name_schemas_do_not_stall_the_choice_of_a_format(landed: TypedTopic) -> None:
    landed.send(*(build_prefix(100 + number) + b"x" for number in range(UNKNOWN_SCHEMAS)))
    started = time.monotonic()
    assert landed.land(table_settings=parse_table_settings("auto")).rows == UNKNOWN_SCHEMAS
    assert landed.open().spec.kind is TableKind.RAW
    assert time.monotonic() - started < UNKNOWN_SCHEMAS * CONFIRMATION_DELAY_SECONDS / 2
