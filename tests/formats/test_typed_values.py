"""Reading of single typed values: framing, decoders of several schemas, and errors."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from chronik.errors import ChronikError
from chronik.formats import typed_values
from chronik.formats.codec import (
    JsonForm,
    UndecodableValueError,
    UnsupportedSchemaError,
    ValueDecoder,
    ValueFormat,
    WriterSchema,
    create_decoder,
)
from chronik.formats.framing import FramedValue, SchemaKey
from chronik.formats.registry_client import SchemaUnknownError
from chronik.formats.typed_values import TypedValue, TypedValueReader, find_frame

GUID = UUID("01234567-89ab-cdef-0123-456789abcdef")
ORDER = WriterSchema(
    ValueFormat.AVRO,
    '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"},'
    ' {"name": "item", "type": "string"}]}',
)
TEXT = WriterSchema(ValueFormat.AVRO, '"string"')
JSON_ORDER = WriterSchema(
    ValueFormat.JSON_SCHEMA,
    '{"type": "object", "properties": {"price": {"type": "number"}, "item": {"type": "string"},'
    ' "tags": {"type": "array", "items": {"type": "string"}}}}',
)
PROTOBUF_ORDER = WriterSchema(
    ValueFormat.PROTOBUF,
    'syntax = "proto3"; message Item { string name = 1; } message Order { message Line { int64 number = 1; } }',
)
INVALID = WriterSchema(ValueFormat.AVRO, '"strange"')
ORDER_PAYLOAD = b"\x0e\x06tea"


class SchemaSource:
    """Schemas by key, and the keys that were fetched."""

    def __init__(self, schemas: dict[SchemaKey, WriterSchema]) -> None:
        self._schemas = schemas
        self.fetched: list[SchemaKey] = []

    def fetch(self, key: SchemaKey) -> WriterSchema:
        self.fetched.append(key)
        if key not in self._schemas:
            raise SchemaUnknownError(f"no schema {key}")
        return self._schemas[key]


@pytest.fixture
def reader() -> TypedValueReader:
    schemas: dict[SchemaKey, WriterSchema] = {
        1: ORDER,
        2: TEXT,
        3: INVALID,
        5: JSON_ORDER,
        6: PROTOBUF_ORDER,
        GUID: ORDER,
    }
    return TypedValueReader(SchemaSource(schemas).fetch)


def frame(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">BI", 0, schema_id) + payload


def read(reader: TypedValueReader, data: bytes, *headers: tuple[str, bytes | None], is_key: bool = False) -> TypedValue:
    found = find_frame(data, headers, is_key=is_key)
    assert found is not None
    return reader.read(found)


def record_created_decoders(monkeypatch: pytest.MonkeyPatch) -> list[WriterSchema]:
    """Return a list to which the schema of each decoder is added that is created from now on."""
    created: list[WriterSchema] = []

    def create(schema: WriterSchema, indexes: tuple[int, ...]) -> ValueDecoder:
        created.append(schema)
        return create_decoder(schema, indexes)

    monkeypatch.setattr(typed_values, "create_decoder", create)
    return created


def test_value_is_decoded_with_schema_of_its_id(reader: TypedValueReader) -> None:
    found = read(reader, frame(1, ORDER_PAYLOAD))
    assert found == TypedValue({"id": 7, "item": "tea"}, 1, ValueFormat.AVRO)
    assert found.json == b'{"id":7,"item":"tea"}'
    assert read(reader, frame(2, b"\x06ada")).form == "ada"


def test_json_of_json_value_is_its_own_text_without_whitespace(reader: TypedValueReader) -> None:
    found = read(reader, frame(5, b' { "price": 1.50, "tags": [ ] }\n'))
    assert found.form == {"price": 1.5, "item": None, "tags": []}
    assert found.json == b'{"price":1.50,"tags":[]}'
    with pytest.raises(UndecodableValueError):
        read(reader, frame(5, b'{"price": "1.50"}'))


@pytest.mark.parametrize(
    ("indexes", "encoded_indexes", "payload", "form"),
    [((0,), b"\x00", b"\x0a\x03tea", {"name": "tea"}), ((1, 0), b"\x04\x02\x00", b"\x08\x07", {"number": 7})],
)
def test_protobuf_value_is_decoded_as_message_type_of_its_indexes(
    reader: TypedValueReader, indexes: tuple[int, ...], encoded_indexes: bytes, payload: bytes, form: JsonForm
) -> None:
    found = read(reader, frame(6, encoded_indexes + payload))
    assert (found.form, found.message_indexes, found.format) == (form, indexes, ValueFormat.PROTOBUF)
    header = ("__value_schema_id", frame(6, encoded_indexes))
    assert read(reader, payload, header).form == form


def test_value_is_decoded_with_schema_of_its_guid(reader: TypedValueReader) -> None:
    assert read(reader, b"\x01" + GUID.bytes + ORDER_PAYLOAD).schema == GUID


def test_schema_in_header_takes_precedence_for_its_field(reader: TypedValueReader) -> None:
    header = ("__value_schema_id", frame(1, b""))
    assert read(reader, ORDER_PAYLOAD, header).form == {"id": 7, "item": "tea"}
    assert find_frame(ORDER_PAYLOAD, [header], is_key=True) is None
    assert read(reader, b"\x06ada", ("__key_schema_id", frame(2, b"")), is_key=True).form == "ada"


@pytest.mark.parametrize("data", [None, b"", b"{}", b"\0\0\0\0", b"\x01" + bytes(15), b"\x02" + bytes(20)])
def test_data_without_schema_has_no_frame(data: bytes | None) -> None:
    assert find_frame(data, is_key=False) is None


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (frame(1, b"\x0e\x06te"), UndecodableValueError),
        (frame(1, ORDER_PAYLOAD + b"!"), UndecodableValueError),
        (frame(3, b""), UnsupportedSchemaError),
        (frame(9, b""), SchemaUnknownError),
    ],
)
def test_undecodable_value_raises_error(reader: TypedValueReader, data: bytes, error: type[ChronikError]) -> None:
    with pytest.raises(error):
        read(reader, data)


def test_schema_is_fetched_for_each_value_but_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    created = record_created_decoders(monkeypatch)
    source = SchemaSource({1: ORDER, 2: TEXT})
    reader = TypedValueReader(source.fetch)
    for _ in range(3):
        reader.read(FramedValue(1, ORDER_PAYLOAD))
        reader.read(FramedValue(2, b"\x06ada"))
    assert created == [ORDER, TEXT]
    assert source.fetched == [1, 2] * 3, "the source decides whether a schema may still be read"


def test_decoder_that_was_not_used_for_longest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_values, "CACHED_DECODERS_MAX", 2)
    created = record_created_decoders(monkeypatch)
    reader = TypedValueReader(SchemaSource({1: ORDER, 2: TEXT, 4: TEXT}).fetch)
    for schema_id, payload in ((1, ORDER_PAYLOAD), (2, b"\0"), (1, ORDER_PAYLOAD), (4, b"\0"), (1, ORDER_PAYLOAD)):
        reader.read(FramedValue(schema_id, payload))
    assert len(created) == 3
    reader.read(FramedValue(2, b"\0"))
    assert len(created) == 4


def test_unsupported_schema_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []

    def create(schema: WriterSchema, indexes: tuple[int, ...]) -> ValueDecoder:
        parsed.append(schema)
        return create_decoder(schema, indexes)

    monkeypatch.setattr(typed_values, "create_decoder", create)
    reader = TypedValueReader(SchemaSource({1: INVALID}).fetch)
    for _ in range(3):
        with pytest.raises(UnsupportedSchemaError, match="strange"):
            reader.read(FramedValue(1, b"\x00"))
    assert parsed == [INVALID]
