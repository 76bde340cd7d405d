"""Values that are crafted to be expensive: every decoder and tool answers in bounded time with bounded output."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from chronik.errors import ChronikError
from chronik.formats.codec import UndecodableValueError, create_decoder
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


def test_large_payload_may_have_large_json() -> None:
    value = HOSTILE_VALUES["protobuf long field names"]
    assert len(read(value, value.build(3 * 1024 * 1024))) > JSON_BYTES_MAX
