"""Values that are crafted to be expensive: every decoder and tool answers in bounded time with bounded output."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from chronik.errors import ChronikError
from chronik.escaping import escape
from chronik.formats.codec import UndecodableValueError, create_decoder
from chronik.formats.decoded_size import COLUMN_BYTES_MAX, ColumnTooLargeError, decode_in_parts
from chronik.formats.framing import FramedValue
from chronik.formats.typed_values import JSON_BYTES_MAX, TypedValueReader
from tests.formats.hostile_values import HOSTILE_VALUES, PROTOBUF, HostileValue

SIZE = 64 * 1024
CPU_SECONDS_MAX = 2.0
"""Generous: the slowest takes a tenth of it."""

FIRST_MESSAGE = b"\x00"


def read(value: HostileValue, payload: bytes) -> bytes:
    """Return the JSON of a value, as the console and `chronik consume` show it."""
    reader = TypedValueReader(lambda _: value.writer_schema)
    framed = FIRST_MESSAGE + payload if value.format is PROTOBUF else payload
    return reader.read(FramedValue(1, framed)).json


@pytest.mark.parametrize("name", HOSTILE_VALUES)
def test_hostile_value_is_shown_or_rejected_in_bounded_time(name: str) -> None:
    value = HOSTILE_VALUES[name]
    payload = value.build(SIZE)
    started = time.process_time()
    shown, problem = b"", ""
    try:
        shown = read(value, payload)
    except ChronikError as error:
        problem = str(error)
    assert len(shown) <= JSON_BYTES_MAX
    assert len(problem) < 2000
    assert problem == escape(problem), "a message is one line without control characters"
    assert time.process_time() - started < CPU_SECONDS_MAX


@pytest.mark.parametrize("name", HOSTILE_VALUES)
def test_hostile_value_in_a_column_is_an_error_of_its_own(name: str) -> None:
    value = HOSTILE_VALUES[name]
    payload = value.build(4096)
    decoder = create_decoder(value.writer_schema, (0,) if value.format is PROTOBUF else ())
    started = time.process_time()
    decoded = decoder.decode_column(pa.array([payload] * 3, pa.binary()))
    assert len(decoded.array) == 3
    assert time.process_time() - started < CPU_SECONDS_MAX
    try:
        decoder.decode_value(payload)
    except UndecodableValueError:
        assert set(decoded.errors) == {0, 1, 2}
    else:
        assert not decoded.errors


@pytest.mark.parametrize("name", ["avro long enum symbols", "avro long field names", "protobuf long enum names"])
def test_value_that_is_much_larger_as_json_is_rejected(name: str) -> None:
    value = HOSTILE_VALUES[name]
    assert len(read(value, value.build(8 * 1024))) > 4 * 1024 * 1024
    with pytest.raises(UndecodableValueError, match="the value has more than 16 MiB as JSON"):
        read(value, value.build(256 * 1024))


LARGE_COLUMNS = [
    "avro long enum symbols",
    "avro unions of long enum symbols",
    "avro null records with many fields",
    "avro unions of long field names",
    "protobuf long enum names",
    "protobuf long defaults",
    "protobuf recursive lists with long names",
    "protobuf maps of enums",
    "json empty objects",
    "json null objects",
    "json maps of empty objects",
]


@pytest.mark.parametrize("name", LARGE_COLUMNS)
@pytest.mark.parametrize("count", [1, 60])
def test_value_that_is_much_larger_in_a_column_is_an_error_of_its_own(name: str, count: int) -> None:
    value = HOSTILE_VALUES[name]
    decoder = create_decoder(value.writer_schema, (0,) if value.format is PROTOBUF else ())
    large, small = value.build(256 * 1024), value.build(16)
    payloads = pa.array([large, *[small] * count], pa.binary())
    before = pa.total_allocated_bytes()
    first, *others = decode_in_parts(
        lambda start, count: decoder.decode_column(payloads.slice(start, count)), 0, len(payloads)
    )
    assert pa.total_allocated_bytes() - before < 2 * COLUMN_BYTES_MAX
    assert first.errors == {0: "the decoded value has more than 16 MiB"}
    assert first.array.null_count == 1
    assert not any(part.errors or part.array.null_count for part in others)


@pytest.mark.parametrize("name", LARGE_COLUMNS)
def test_values_that_are_too_large_together_are_decoded_in_parts(name: str) -> None:
    value = HOSTILE_VALUES[name]
    decoder = create_decoder(value.writer_schema, (0,) if value.format is PROTOBUF else ())
    payloads = pa.array([value.build(8 * 1024)] * 60, pa.binary())
    with pytest.raises(ColumnTooLargeError):
        decoder.decode_column(payloads)
    parts = list(decode_in_parts(lambda start, count: decoder.decode_column(payloads.slice(start, count)), 0, 10))
    assert not any(part.errors for part in parts)
    assert sum(len(part.array) for part in parts) == 10
    assert max(part.array.nbytes for part in parts) < COLUMN_BYTES_MAX


def test_value_with_many_absent_properties_is_not_shown() -> None:
    value = HOSTILE_VALUES["json empty objects"]
    decoder = create_decoder(value.writer_schema)
    assert len(decoder.decode_value(value.build(8 * 1024))) == 8 * 1024 // 3
    with pytest.raises(UndecodableValueError, match="the decoded value has more than 16 MiB"):
        decoder.decode_value(value.build(256 * 1024))


def test_large_payload_may_have_large_json() -> None:
    value = HOSTILE_VALUES["protobuf long field names"]
    assert len(read(value, value.build(3 * 1024 * 1024))) > JSON_BYTES_MAX
