"""Typed keys and values of `chronik consume` and `chronik produce`: decoding, encoding, and their errors."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from uuid import UUID

import pytest

from chronik.cli.arguments import InvalidInput
from chronik.cli.records import consume, produce
from chronik.cli.records.input_formats import create_input_parser
from chronik.cli.records.output_formats import select_formatter
from chronik.cli.records.record_decoder import UNKNOWN_SCHEMAS_MAX, RegistryRecordDecoder
from chronik.cli.records.record_encoder import RecordEncoders
from chronik.cli.records.record_json import record_from_json
from chronik.cli.records.value_registry import open_value_registry
from chronik.client.records import ConsumedRecord, OutgoingRecord
from chronik.errors import ChronikError
from chronik.formats import registry_client
from chronik.formats.codec import ValueFormat
from chronik.formats.registry_client import RegistryClient, RegistryUnavailableError
from tests.formats.hostile_values import HOSTILE_VALUES
from tests.formats.http_registry import HttpRegistry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
JSON_ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
    "required": ["id"],
}
PROTOBUF_ORDER = """
syntax = "proto3";
message Item { string name = 1; }
message Order { int64 id = 1; Item item = 2; }
"""
PAYLOAD = b"\x0e\x06tea\x04\x00\xfa"
"""The Avro encoding of order 7: tea for 2.50."""
DECODED = {"id": 7, "item": "tea", "price": 2.5}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpRegistry]:
    monkeypatch.setattr(registry_client, "CONFIRMATION_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(registry_client, "RETRY_DELAY_SECONDS", 0.0)
    started = HttpRegistry()
    yield started
    started.stop()


def prefix(schema_id: int) -> bytes:
    return struct.pack(">BI", 0, schema_id)


def build_record(
    value: bytes | None, key: bytes | None = b"k", headers: tuple[tuple[str, bytes | None], ...] = (), offset: int = 5
) -> ConsumedRecord:
    return ConsumedRecord("orders", 0, offset, 1500, key, value, headers)


def parse(add_arguments: Callable[[argparse.ArgumentParser], None], words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(["orders", *shlex.split(words)])


def format_records(
    words: str,
    *records: ConsumedRecord,
    open_registry: Callable[[argparse.Namespace], RegistryClient] = open_value_registry,
) -> list[bytes]:
    arguments = parse(consume.add_arguments, words)
    with closing(RegistryRecordDecoder(arguments, open_registry)) as decoder:
        formatter = select_formatter(arguments, decoder)
        return [formatter(record) for record in records]


def parse_lines(words: str, *lines: str) -> list[OutgoingRecord]:
    arguments = parse(produce.add_arguments, words)
    chunks = [line.encode() + b"\n" for line in lines]
    with closing(RecordEncoders(arguments, open_value_registry)) as encoders:
        parse_input = create_input_parser(arguments, encoders)
        encoders.load_defaults()
        return [record for chunk in parse_input(chunks) for _, record in chunk]


def fail_to_open(arguments: argparse.Namespace) -> RegistryClient:
    raise InvalidInput("the brokers have no schema registry")


# consume


def test_json_output_contains_decoded_fields_and_their_schemas(registry: HttpRegistry) -> None:
    schema_id, key_id = registry.add("orders-value", ORDER), registry.add("orders-key", '"string"')
    record = build_record(prefix(schema_id) + PAYLOAD, prefix(key_id) + b"\x06ada")
    (line,) = format_records(f"--json --registry {registry.url}", record)
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 0,
        "offset": 5,
        "timestamp": 1500,
        "key": "ada",
        "key_schema": {"id": key_id, "format": "avro"},
        "value": DECODED,
        "value_schema": {"id": schema_id, "format": "avro"},
        "headers": [],
    }
    assert b'"price": 2.50' in line, "decimals keep all their digits"


def test_control_characters_in_decoded_text_are_escaped(registry: HttpRegistry) -> None:
    schema_id = registry.add("orders-value", '"string"')
    text = "\u202eevil\u001b[2J".encode()
    (line,) = format_records(f"--json --registry {registry.url}", build_record(prefix(schema_id) + b"\x16" + text))
    assert rb'"value": "\u202eevil\u001b[2J"' in line


def test_schema_in_header_is_used_for_decoding(registry: HttpRegistry) -> None:
    schema_id = registry.add("orders-value", ORDER)
    guid = registry.guid(schema_id)
    record = build_record(PAYLOAD, headers=(("__value_schema_id", b"\x01" + guid.bytes),))
    (line,) = format_records(f"--json --registry {registry.url}", record)
    assert json.loads(line)["value"] == DECODED
    assert json.loads(line)["value_schema"] == {"guid": str(guid), "format": "avro"}


@pytest.mark.parametrize(
    ("value", "field", "raw", "reason"),
    [
        (prefix(1) + b"\x0e\xff", "value_base64", "AAAAAAEO/w==", "item"),
        (prefix(9) + b"tea", "value", "\0\0\0\0\ttea", "no schema with id 9"),
    ],
)
def test_undecodable_value_is_printed_raw_with_reason(
    registry: HttpRegistry, value: bytes, field: str, raw: str, reason: str
) -> None:
    registry.add("orders-value", ORDER)
    (line,) = format_records(f"--json --registry {registry.url}", build_record(value))
    printed = json.loads(line)
    assert printed[field] == raw
    assert reason in printed["value_error"]
    assert "value_schema" not in printed
    again = record_from_json(line)
    assert (again.value, again.key) == (value, b"k"), "the line can be written unchanged"


def test_values_without_schema_are_printed_as_before(registry: HttpRegistry) -> None:
    records = build_record(b'{"a": 1}'), build_record(None, None), build_record(b"\0\0\0\0")
    for record, line in zip(records, format_records(f"--json --registry {registry.url}", *records), strict=True):
        assert "value_error" not in json.loads(line)
        assert record_from_json(line).value == record.value
    assert registry.requests == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--decode", b'{"id":7,"item":"tea","price":2.50}\n'),
        ("--decode --format key=value", b'ada={"id":7,"item":"tea","price":2.50}\n'),
        (r"--pattern '%k %s\n'", b'ada {"id":7,"item":"tea","price":2.50}\n'),
        ("--no-decode", prefix(1) + PAYLOAD + b"\n"),
        ("--no-decode --json", None),
    ],
)
def test_decode_option_selects_decoded_or_raw_output(
    registry: HttpRegistry, words: str, expected: bytes | None
) -> None:
    registry.add("orders-value", ORDER)
    key_id = registry.add("orders-key", '"string"')
    record = build_record(prefix(1) + PAYLOAD, prefix(key_id) + b"\x06ada")
    (line,) = format_records(f"{words} --registry {registry.url}", record)
    if expected is None:
        assert "value_schema" not in json.loads(line)
    else:
        assert line == expected


def test_lines_are_raw_without_decode_option() -> None:
    (line,) = format_records("", build_record(prefix(1) + PAYLOAD), open_registry=fail_to_open)
    assert line == prefix(1) + PAYLOAD + b"\n"


def test_undecodable_value_in_lines_is_reported_once(
    registry: HttpRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    record = build_record(prefix(9) + b"tea")
    lines = format_records(f"--registry {registry.url}", record, record._replace(offset=6))
    assert lines == [prefix(9) + b"tea\n"] * 2
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith("chronik: warning: orders-0 offset 5: the value is printed undecoded: ")
    assert warning.endswith("has no schema with id 9")


def test_missing_registry_disables_decoding_with_warning_unless_requested(capsys: pytest.CaptureFixture[str]) -> None:
    record = build_record(prefix(1) + PAYLOAD)
    lines = format_records("--json", record, record, open_registry=fail_to_open)
    assert [record_from_json(line).value for line in lines] == [record.value] * 2
    expected = "chronik: warning: typed values are not decoded: the brokers have no schema registry\n"
    assert capsys.readouterr().err == expected
    with pytest.raises(InvalidInput, match="the brokers have no schema registry"):
        format_records("--json --decode", record, open_registry=fail_to_open)


def test_unavailable_registry_is_an_error_if_named(registry: HttpRegistry) -> None:
    registry.stop()
    with pytest.raises(RegistryUnavailableError):
        format_records(f"--json --registry {registry.url}", build_record(prefix(1) + PAYLOAD))


def test_binary_data_without_known_schemas_is_no_longer_looked_up(
    registry: HttpRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [build_record(prefix(1000 + number) + b"x", offset=number) for number in range(2 * UNKNOWN_SCHEMAS_MAX)]
    lines = format_records(f"--json --registry {registry.url}", *records)
    assert sum("value_error" in json.loads(line) for line in lines) == UNKNOWN_SCHEMAS_MAX
    assert len({path for path in registry.requests if path.rpartition("/")[2] >= "1000"}) == UNKNOWN_SCHEMAS_MAX
    assert "orders: values are not decoded" in capsys.readouterr().err


def test_unknown_schemas_after_typed_values_are_still_looked_up(registry: HttpRegistry) -> None:
    known = build_record(prefix(registry.add("orders-value", ORDER)) + PAYLOAD)
    unknown = [build_record(prefix(1000 + number) + b"x") for number in range(UNKNOWN_SCHEMAS_MAX)]
    lines = format_records(f"--json --registry {registry.url}", known, *unknown, known)
    assert json.loads(lines[-1])["value"] == DECODED


def test_many_unknown_schemas_after_typed_values_are_requested_once(registry: HttpRegistry) -> None:
    known = build_record(prefix(registry.add("orders-value", ORDER)) + PAYLOAD)
    unknown = [build_record(prefix(1000 + number) + b"x") for number in range(5 * UNKNOWN_SCHEMAS_MAX)]
    lines = format_records(f"--json --registry {registry.url}", known, *unknown, known)
    assert all("has no schema with id" in json.loads(line)["value_error"] for line in lines[1:-1])
    assert json.loads(lines[-1])["value"] == DECODED
    # Further ones are not confirmed, which would take a delay for each.
    assert len(registry.requests) == 1 + 2 * UNKNOWN_SCHEMAS_MAX + 4 * UNKNOWN_SCHEMAS_MAX


def test_hostile_values_are_printed_decoded_or_with_a_problem_of_one_line(
    registry: HttpRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {ValueFormat.AVRO: "AVRO", ValueFormat.JSON_SCHEMA: "JSON", ValueFormat.PROTOBUF: "PROTOBUF"}
    good = build_record(prefix(registry.add("orders-value", ORDER)) + PAYLOAD)
    records = []
    for offset, value in enumerate(HOSTILE_VALUES.values()):
        id = registry.add("orders-value", value.schema, kinds[value.format])
        first = b"\x00" if value.format is ValueFormat.PROTOBUF else b""
        records += [build_record(prefix(id) + first + value.build(4096), offset=offset), good]
    lines = format_records(f"--json --registry {registry.url}", *records)
    assert all(json.loads(line)["value"] == DECODED for line in lines[1::2])
    # Python's own limit on the digits of integers does not matter.
    shown = [json.loads(line, parse_int=str) for line in lines[::2]]
    problems = [each["value_error"] for each in shown if "value_error" in each]
    assert problems
    assert not any("\n" in problem for problem in problems)
    format_records(f"--decode --registry {registry.url}", *records)
    warnings = capsys.readouterr().err.splitlines()
    assert warnings
    assert all(
        re.match(r"chronik: warning: orders-0 offset \d+: the value is printed undecoded: .", each) for each in warnings
    )


def test_registry_settings_of_client_config_are_used(registry: HttpRegistry, tmp_path: Any) -> None:
    registry.add("orders-value", ORDER)
    config = tmp_path / "client.properties"
    config.write_text("basic.auth.user.info=ada:wrong\nschema.registry.basic.auth.user.info=ada:lovelace\n")
    words = f"--json --registry {registry.url} --client-config {config}"
    format_records(words, build_record(prefix(1) + PAYLOAD))
    assert {each["Authorization"] for each in registry.headers} == {"Basic YWRhOmxvdmVsYWNl"}


@pytest.mark.parametrize(
    ("schema", "type", "payload", "decoded", "named"),
    [
        (JSON_ORDER, "JSON", b'{"id":7}', {"id": 7}, {"format": "json-schema"}),
        (PROTOBUF_ORDER, "PROTOBUF", b"\x00\x0a\x03tea", {"name": "tea"},
         {"format": "protobuf", "message_indexes": [0]}),
        (PROTOBUF_ORDER, "PROTOBUF", b"\x02\x02\x08\x07\x12\x05\x0a\x03tea", {"id": 7, "item": {"name": "tea"}},
         {"format": "protobuf", "message_indexes": [1]}),
    ],
)  # fmt: skip
def test_json_schema_and_protobuf_values_are_decoded_and_encoded_again(
    registry: HttpRegistry, schema: Any, type: str, payload: bytes, decoded: Any, named: dict[str, Any]
) -> None:
    schema_id = registry.add("orders-value", schema, type)
    value = prefix(schema_id) + payload
    (line,) = format_records(f"--json --registry {registry.url}", build_record(value))
    assert json.loads(line)["value"] == decoded
    assert json.loads(line)["value_schema"] == {"id": schema_id, **named}
    (record,) = parse_lines(f"--json --registry {registry.url}", line.decode())
    assert record.value == value


# produce


def test_values_are_encoded_with_latest_schema_of_subject(registry: HttpRegistry) -> None:
    registry.add("orders-value", '"string"')
    latest = registry.add("orders-value", ORDER)
    words = f"--value-format avro --registry {registry.url}"
    line = '{"id": 7, "item": "tea", "price": 2.50}'
    (record,) = parse_lines(words, line)
    assert record == OutgoingRecord(prefix(latest) + PAYLOAD)
    (record,) = parse_lines(f"{words} --json", f'{{"key": "ada", "value": {line}}}')
    assert (record.key, record.value) == (b"ada", prefix(latest) + PAYLOAD)
    (tombstone,) = parse_lines(f"{words} --json", '{"key": "ada", "value": null}')
    assert tombstone.value is None


@pytest.mark.parametrize(
    ("schema", "type", "format", "text", "payload"),
    [
        (JSON_ORDER, "JSON", "json-schema", '{"id": 7}', b'{"id":7}'),
        (PROTOBUF_ORDER, "PROTOBUF", "protobuf", '{"name": "tea"}', b"\x00\x0a\x03tea"),
    ],
)
def test_values_are_encoded_as_json_schema_and_protobuf(
    registry: HttpRegistry, schema: Any, type: str, format: str, text: str, payload: bytes
) -> None:
    schema_id = registry.add("orders-value", schema, type)
    (record,) = parse_lines(f"--value-format {format} --registry {registry.url}", text)
    assert record.value == prefix(schema_id) + payload


def test_keys_and_values_are_encoded_with_schema_ids(registry: HttpRegistry) -> None:
    value_id, key_id = registry.add("anything", ORDER), registry.add("anything-else", '"string"')
    words = f"--value-schema-id {value_id} --key-schema-id {key_id} --key-format avro -k '|' --registry {registry.url}"
    (record,) = parse_lines(words, '"ada"|{"id": 7, "item": "tea", "price": 2.50}')
    assert record == OutgoingRecord(prefix(value_id) + PAYLOAD, prefix(key_id) + b"\x06ada")


def test_output_of_consume_is_encoded_with_the_same_schemas(registry: HttpRegistry) -> None:
    schema_id, key_id = registry.add("orders-value", ORDER), registry.add("orders-key", '"string"')
    guid = UUID(int=schema_id)
    key = prefix(key_id) + b"\x06ada"
    records = [
        build_record(prefix(schema_id) + PAYLOAD, key),
        build_record(b"\x01" + guid.bytes + PAYLOAD, None),
        build_record(PAYLOAD, headers=(("__value_schema_id", b"\x01" + guid.bytes),)),
        build_record(prefix(99) + b"unknown", b"plain"),
        build_record(None, b"plain"),
    ]
    lines = format_records(f"--json --registry {registry.url}", *records)
    again = parse_lines(f"--json --registry {registry.url}", *(line.decode() for line in lines))
    assert [(each.key, each.value, each.headers) for each in again] == [
        (each.key, each.value, each.headers) for each in records
    ]


@pytest.mark.parametrize(
    ("words", "line", "expected"),
    [
        ("--value-format avro", '{"id": "7", "item": "tea", "price": 1}', "line 1: value: id: expected long, got '7'"),
        ("--value-format avro", "tea", "line 1: value: not valid JSON: "),
        ("--value-format protobuf", "{}", "version 1 of subject orders-value has the format avro, not protobuf"),
        ("--value-schema-id 8", "{}", "has no schema with id 8"),
        ("--key-format avro -k :", "a:b", "Subject 'orders-key' not found"),
        ("--value-format avro --format csv", "a,b", "--format csv cannot be used with options for schemas"),
        ("--json", '{"value": 1, "value_schema": {"id": 8}}', "line 1: value_schema: "),
        ("--json", '{"value": 1, "value_schema": {"format": "avro"}}', "value_schema: expected an id or a guid"),
        ("--json", '{"value": 1, "value_schema": {"id": 1, "format": "xml"}}', "value_schema.format: "),
        ("--json --value-format avro", '{"value": 1, "headers": [{"name": "__value_schema_id", "value": "x"}]}',
         "line 1: the record has the header __value_schema_id: omit --value-format"),
    ],
)  # fmt: skip
def test_value_that_cannot_be_encoded_is_rejected(registry: HttpRegistry, words: str, line: str, expected: str) -> None:
    registry.add("orders-value", ORDER)
    with pytest.raises(ChronikError) as raised:
        parse_lines(f"{words} --registry {registry.url}", line)
    assert expected in str(raised.value)
