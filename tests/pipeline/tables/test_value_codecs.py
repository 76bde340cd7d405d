"""Tests of the codecs of column types: which values fit, which keep another spelling, and what is restored."""

from __future__ import annotations

import base64
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from chronik.errors import ConfigError
from chronik.pipeline.tables.values.exact_json import decode_exact_json
from chronik.pipeline.tables.values.sql_types import parse_sql_type
from chronik.pipeline.tables.values.table_schema import Column
from chronik.pipeline.tables.values.value_codecs import (
    BUILD_ERRORS,
    NOTHING,
    CodecOptions,
    ValueCodec,
    build_with_misfits,
    create_column_codec,
)
from tests.pipeline.tables.random_json import canonical_json


def create_codec(sql_type: str, format: str | None = None, zone: str | None = None) -> ValueCodec:
    kind = parse_sql_type(sql_type)
    return create_column_codec(Column("c", kind.data_type, ("c",), format or kind.format, zone))


def decode_typed(codec: ValueCodec, text: str) -> Any:
    return msgspec.json.Decoder(codec.fast_type).decode(text)


def encode_restored(codec: ValueCodec, array: pa.Array) -> list[Any]:
    return [None if each is None else msgspec.json.encode(codec.restore(each)) for each in array.to_pylist()]


def assert_fits(codec: ValueCodec, text: str, *, is_respelled: bool = False) -> Any:
    """Assert that a JSON value is built and restored among nulls, and return the value in the column."""
    typed = decode_typed(codec, text)
    built = codec.build([codec.missing, typed, codec.missing])
    assert built.array.type == codec.data_type
    assert built.respelled_rows == ((1,) if is_respelled else ())
    nothing, restored, also_nothing = encode_restored(codec, built.array)
    assert (nothing, also_nothing) == (None, None)
    assert (canonical_json(restored) != canonical_json(text)) == is_respelled
    adapted = codec.adapt(decode_exact_json(text.encode()))
    assert adapted.leftover is NOTHING
    assert codec.build([adapted.value], is_adapted=True).array.to_pylist() == built.array.to_pylist()[1:2]
    return built.array.to_pylist()[1]


def assert_misfit(codec: ValueCodec, text: str) -> None:
    with pytest.raises(BUILD_ERRORS):
        codec.build([decode_typed(codec, text)])
    with pytest.raises(BUILD_ERRORS):
        codec.build([codec.adapt(decode_exact_json(text.encode())).value], is_adapted=True)


NUMBERS = [
    ("tinyint", "127", 127),
    ("tinyint", "-128", -128),
    ("smallint", "-32768", -32768),
    ("int", "2147483647", 2147483647),
    ("bigint", "9223372036854775807", 2**63 - 1),
    ("bigint", "-9223372036854775808", -(2**63)),
    ("double", "1", 1.0),
    ("double", "0.1", 0.1),
    ("double", "1E5", 1e5),
    ("double", "0.10000000000000001", 0.1),
    ("double", "9007199254740992", 2.0**53),
    ("double", "5e-324", 5e-324),
    ("float", "0.1", 0.10000000149011612),
    ("float", "0.10", 0.10000000149011612),
    ("float", "16777216", 16777216.0),
    ("float", "3.4028235e38", 3.4028234663852886e38),
    ("float", "1e-45", 1.401298464324817e-45),
    ("decimal(5,2)", "1.5", Decimal("1.50")),
    ("decimal(5,2)", "-999.99", Decimal("-999.99")),
    ("decimal(5,2)", "1e2", Decimal("100.00")),
    ("decimal(5,2)", "100e-2", Decimal("1.00")),
    ("decimal(5,2)", "1.500000000000000000000000000000000000000000000000", Decimal("1.50")),
    ("decimal(5,2)", "-0", Decimal("0.00")),
    ("decimal(38,38)", "0." + "1" * 38, Decimal("0." + "1" * 38)),
    ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
    ("decimal(38,10)", "1234567890123456789012345678.0123456789", Decimal("1234567890123456789012345678.0123456789")),
    ("decimal(38,3)", "0e-999999999", Decimal("0.000")),
    ("decimal(38,3)", "1." + "0" * 5000, Decimal("1.000")),
]


@pytest.mark.parametrize(("sql_type", "text", "value"), NUMBERS)
def test_number_that_fits_is_restored(sql_type: str, text: str, value: Any) -> None:
    assert assert_fits(create_codec(sql_type), text) == value


@pytest.mark.parametrize(
    ("sql_type", "text"),
    [
        ("boolean", "1"),
        ("boolean", '"true"'),
        ("tinyint", "128"),
        ("tinyint", "-129"),
        ("smallint", "32768"),
        ("int", "-2147483649"),
        ("bigint", "9223372036854775808"),
        ("bigint", "1.5"),
        ("bigint", "1.0"),
        ("bigint", "1e3"),
        ("bigint", "true"),
        ("bigint", '"1"'),
        ("double", "9007199254740993"),
        ("double", "0.1000000000000000000000001"),
        ("double", "1e400"),
        ("double", "1e-400"),
        ("double", "true"),
        ("double", '"1"'),
        ("double", "[1]"),
        ("float", "16777217"),
        ("float", "0.123456789"),
        ("float", "1e39"),
        ("float", "1e-50"),
        ("float", '"1"'),
        ("decimal(5,2)", "1.505"),
        ("decimal(5,2)", "1000"),
        ("decimal(5,2)", "0.001"),
        ("decimal(5,2)", "true"),
        ("decimal(5,2)", '"1"'),
        ("decimal(5,2)", "1." + "0" * 50 + "1"),
        ("string", "5"),
        ("string", "[]"),
        ("binary", "5"),
        ("date", "5"),
        ("timestamp", "1714564800"),
        ("array<int>", "5"),
        ("array<int>", '{"a": 1}'),
        ("map<string, int>", "[]"),
        ("struct<a: int>", "[]"),
    ],
)
def test_value_of_other_type_or_range_does_not_fit(sql_type: str, text: str) -> None:
    assert_misfit(create_codec(sql_type), text)


NUMBER_CODECS = [
    ("tinyint", None),
    ("bigint", None),
    ("bigint", "string"),
    ("double", None),
    ("double", "string"),
    ("float", None),
    ("float", "string"),
    ("decimal(38,3)", None),
    ("decimal(38,3)", "string"),
    ("date", "epoch_days"),
    ("timestamp", "epoch_s"),
    ("timestamp_ntz", "epoch_us"),
]


@pytest.mark.parametrize(
    "number", ["1e999999999", "-1e999999999", "1e-999999999", "1e999999", "1e99999999999999999999"]
)
@pytest.mark.parametrize(("sql_type", "format"), NUMBER_CODECS)
def test_number_with_huge_exponent_is_rejected_fast(sql_type: str, format: str | None, number: str) -> None:
    codec = create_codec(sql_type, format)
    started = time.process_time()
    assert_misfit(codec, f'"{number}"' if format == "string" else number)
    # The digits of 1e999999999 would take seconds to write down, and a gigabyte.
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    ("sql_type", "text", "is_respelled"),
    [
        ("bigint", "5", False),
        ("bigint", "-0", True),
        ("double", "0.5", False),
        ("double", "1", True),
        ("double", "0.50", True),
        ("float", "0.1", False),
        ("decimal(5,2)", "1.50", False),
        ("decimal(5,2)", "1.5", True),
        ("decimal(5,2)", "1e2", True),
    ],
)
def test_number_in_string_keeps_its_spelling(sql_type: str, text: str, is_respelled: bool) -> None:
    assert_fits(create_codec(sql_type, "string"), f'"{text}"', is_respelled=is_respelled)


@pytest.mark.parametrize("text", ["", " 5", "05", "+5", "0x5", "5.", ".5", "1_000", "NaN", "Infinity", "٣", "five"])
@pytest.mark.parametrize("sql_type", ["bigint", "double", "float", "decimal(5,2)"])
def test_text_that_is_not_a_json_number_does_not_fit(sql_type: str, text: str) -> None:
    assert_misfit(create_codec(sql_type, "string"), f'"{text}"')


@pytest.mark.parametrize("text", ['""', '"ä\\n\\u00e9"', '"\\ud83d\\ude00"'])
def test_string_is_restored(text: str) -> None:
    assert assert_fits(create_codec("string"), text) == msgspec.json.decode(text)


@pytest.mark.parametrize("text", ["5", '"5"', "true", "[1,null,1e400]", '{"a":{"b":0.10000000000000000000000001}}'])
def test_json_text_keeps_any_value(text: str) -> None:
    assert_fits(create_codec("json"), text)


@pytest.mark.parametrize(
    ("format", "text", "value", "is_respelled"),
    [
        (None, "QUJD", b"ABC", False),
        ("base64", "QQ==", b"A", False),
        (None, "QR==", b"A", True),
        (None, "", b"", False),
        ("hex", "00ff", b"\x00\xff", False),
        ("hex", "00FF", b"\x00\xff", True),
    ],
)
def test_bytes_in_text_are_restored(format: str | None, text: str, value: bytes, is_respelled: bool) -> None:
    assert assert_fits(create_codec("binary", format), f'"{text}"', is_respelled=is_respelled) == value


@pytest.mark.parametrize(
    ("format", "text"),
    [
        (None, "QQ"),
        (None, "Q Q=="),
        (None, "é"),
        (None, "QQ-_"),
        ("hex", "0"),
        ("hex", "zz"),
        ("hex", "0x"),
        ("hex", "é"),
    ],
)
def test_text_that_is_not_encoded_bytes_does_not_fit(format: str | None, text: str) -> None:
    assert_misfit(create_codec("binary", format), f'"{text}"')


def test_all_bytes_are_restored() -> None:
    data = bytes(range(256))
    assert assert_fits(create_codec("binary"), f'"{base64.b64encode(data).decode()}"') == data
    assert assert_fits(create_codec("binary", "hex"), f'"{data.hex()}"') == data


@pytest.mark.parametrize(
    ("format", "text", "value"),
    [
        (None, '"2024-05-01"', date(2024, 5, 1)),
        ("iso8601", '"0001-01-01"', date.min),
        (None, '"9999-12-31"', date.max),
        ("epoch_days", "0", date(1970, 1, 1)),
        ("epoch_days", "-719162", date.min),
        ("epoch_days", "2932896", date.max),
        ("%d.%m.%Y", '"01.05.2024"', date(2024, 5, 1)),
        ("%d.%m.%Y", '"01.05.0099"', date(99, 5, 1)),
        ("%%%Y-%m-%d", '"%2024-05-01"', date(2024, 5, 1)),
    ],
)
def test_date_is_restored(format: str | None, text: str, value: date) -> None:
    assert assert_fits(create_codec("date", format), text) == value


@pytest.mark.parametrize(
    ("format", "text"),
    [
        (None, '"0000-01-01"'),
        (None, '"10000-01-01"'),
        (None, '"2024-5-1"'),
        (None, '"2024-02-30"'),
        (None, '"2024-05-01T00:00:00"'),
        (None, '" 2024-05-01"'),
        ("epoch_days", "2932897"),
        ("epoch_days", "-719163"),
        ("epoch_days", "1000000000000"),
        ("epoch_days", "1.5"),
        ("%d.%m.%Y", '"2024-05-01"'),
        ("%d.%m.%Y", '"31.02.2024"'),
    ],
)
def test_text_that_is_not_a_date_does_not_fit(format: str | None, text: str) -> None:
    assert_misfit(create_codec("date", format), text)


@pytest.mark.parametrize(
    ("text", "value", "is_respelled"),
    [
        ("2024-05-01T10:00:00Z", datetime(2024, 5, 1, 10), False),
        ("2024-05-01T10:00:00.500Z", datetime(2024, 5, 1, 10, 0, 0, 500_000), False),
        ("2024-05-01T10:00:00.123456Z", datetime(2024, 5, 1, 10, 0, 0, 123_456), False),
        ("0001-01-01T00:00:00Z", datetime.min, False),
        ("9999-12-31T23:59:59.999999Z", datetime.max, False),
        ("2024-05-01T10:00:00.5Z", datetime(2024, 5, 1, 10, 0, 0, 500_000), True),
        ("2024-05-01T10:00:00.000Z", datetime(2024, 5, 1, 10), True),
        ("2024-05-01T10:00:00.500000Z", datetime(2024, 5, 1, 10, 0, 0, 500_000), True),
        ("2024-05-01T10:00:00+02:00", datetime(2024, 5, 1, 8), True),
        ("2024-05-01T10:00:00-0930", datetime(2024, 5, 1, 19, 30), True),
        ("2024-05-01T10:00:00+00:00", datetime(2024, 5, 1, 10), True),
        ("2024-05-01T10:00Z", datetime(2024, 5, 1, 10), True),
        ("2024-05-01 10:00:00", datetime(2024, 5, 1, 10), True),
        ("2024-05-01", datetime(2024, 5, 1), True),
    ],
)
def test_timestamp_is_stored_in_utc_and_keeps_its_spelling(text: str, value: datetime, is_respelled: bool) -> None:
    found = assert_fits(create_codec("timestamp"), f'"{text}"', is_respelled=is_respelled)
    assert found == value.replace(tzinfo=UTC)


NOT_TIMESTAMPS = [
    "",
    "2024-05-01T10:00:00.1234567Z",
    "2024-02-30T00:00:00Z",
    "2024-05-01T24:00:00Z",
    "2024-05-01T23:59:60Z",
    "2024-05-01T10:00:00+99:99",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59-01:00",
    "20240501T100000Z",
    " 2024-05-01T10:00:00Z",
    "2024-05-01T10:00:00Z\\n",
    "2024-05-01T10:00:00 Europe/Berlin",
]


@pytest.mark.parametrize("text", NOT_TIMESTAMPS)
def test_text_that_is_not_a_timestamp_does_not_fit(text: str) -> None:
    assert_misfit(create_codec("timestamp"), f'"{text}"')
    assert_misfit(create_codec("timestamp", zone="Europe/Berlin"), f'"{text}"')
    assert_misfit(create_codec("timestamp_ntz"), f'"{text}"')


def test_timestamp_without_zone_has_no_offset() -> None:
    codec = create_codec("timestamp_ntz")
    assert assert_fits(codec, '"2024-05-01T10:00:00.001"') == datetime(2024, 5, 1, 10, 0, 0, 1000)
    assert assert_fits(codec, '"2024-05-01 10:00"', is_respelled=True) == datetime(2024, 5, 1, 10)
    assert_misfit(codec, '"2024-05-01T10:00:00Z"')
    assert_misfit(codec, '"2024-05-01T10:00:00+02:00"')


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Africa/Casablanca", "Etc/GMT-14"]
)
@pytest.mark.parametrize("year", [5, 1800, 1893, 1916, 1945, 1980, 2024, 2036, 2037, 2038, 2050, 9000])
def test_local_timestamp_of_any_year_is_restored(zone: str, year: int) -> None:
    codec = create_codec("timestamp", zone=zone)
    for month in (1, 4, 7, 10):
        assert_fits(codec, f'"{year:04}-{month:02}-15T12:34:56"')


@pytest.mark.parametrize(
    ("text", "utc_hour", "is_respelled"),
    [
        ("2024-01-01T12:00:00", 11, False),
        ("2024-07-01T12:00:00", 10, False),
        ("2050-01-01T12:00:00", 11, False),
        ("2050-07-01T12:00:00", 10, False),
        ("2024-07-01T12:00:00Z", 12, True),
        ("2024-10-27T02:30:00", 0, False),
        ("2024-10-27T02:30:00+02:00", 0, True),
        ("2024-10-27T02:30:00+01:00", 1, True),
    ],
)
def test_local_timestamp_uses_offset_of_its_season(text: str, utc_hour: int, is_respelled: bool) -> None:
    codec = create_codec("timestamp", zone="Europe/Berlin")
    typed = decode_typed(codec, f'"{text}"')
    built = codec.build([typed])
    assert built.array.to_pylist()[0].hour == utc_hour
    assert bool(built.respelled_rows) == is_respelled


@pytest.mark.parametrize("text", ["2024-03-31T02:30:00", "2050-03-27T02:30:00"])
def test_local_timestamp_in_daylight_saving_gap_does_not_fit(text: str) -> None:
    assert_misfit(create_codec("timestamp", zone="Europe/Berlin"), f'"{text}"')


@pytest.mark.parametrize("text", ["9999-12-31T23:30:00Z", "0001-01-01T00:30:00Z", "9999-12-31T23:30:00"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_timestamp_that_has_no_local_time_does_not_fit(zone: str, text: str) -> None:
    assert_misfit(create_codec("timestamp", zone=zone), f'"{text}"')


@pytest.mark.parametrize("sql_type", ["timestamp", "timestamp_ntz"])
@pytest.mark.parametrize(
    ("format", "text", "value"),
    [
        ("epoch_s", "1714564800", datetime(2024, 5, 1, 12)),
        ("epoch_s", "1.5", datetime(1970, 1, 1, 0, 0, 1, 500_000)),
        ("epoch_s", "-1.50", datetime(1969, 12, 31, 23, 59, 58, 500_000)),
        ("epoch_s", "1e3", datetime(1970, 1, 1, 0, 16, 40)),
        ("epoch_s", "-62135596800", datetime.min),
        ("epoch_s", "253402300799.999999", datetime.max),
        ("epoch_ms", "1714564800123", datetime(2024, 5, 1, 12, 0, 0, 123_000)),
        ("epoch_ms", "0.5", datetime(1970, 1, 1, 0, 0, 0, 500)),
        ("epoch_us", "1.0", datetime(1970, 1, 1, 0, 0, 0, 1)),
    ],
)
def test_epoch_is_restored(sql_type: str, format: str, text: str, value: datetime) -> None:
    assert assert_fits(create_codec(sql_type, format), text).replace(tzinfo=None) == value


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("epoch_s", "0.0000001"),
        ("epoch_s", "-62135596801"),
        ("epoch_s", "253402300800"),
        ("epoch_s", "true"),
        ("epoch_s", '"5"'),
        ("epoch_ms", "1e-4"),
        ("epoch_us", "0.5"),
    ],
)
def test_number_that_is_not_an_epoch_does_not_fit(format: str, text: str) -> None:
    assert_misfit(create_codec("timestamp", format), text)


@pytest.mark.parametrize(
    ("format", "zone", "text", "value", "is_respelled"),
    [
        ("%d.%m.%Y %H:%M", None, "01.05.2024 10:00", datetime(2024, 5, 1, 10), False),
        ("%d.%m.%Y %H:%M", None, "1.5.2024 10:00", datetime(2024, 5, 1, 10), True),
        ("%d.%m.%Y %H:%M", "Europe/Berlin", "01.05.2024 10:00", datetime(2024, 5, 1, 8), False),
        ("%d.%m.%Y %H:%M", "Europe/Berlin", "01.07.2050 10:00", datetime(2050, 7, 1, 8), False),
        ("%d.%m.%Y %H:%M", "Europe/Berlin", "31.03.2024 02:30", datetime(2024, 3, 31, 1, 30), True),
        ("%d.%m.%Y %H:%M %z", None, "01.05.2024 10:00 +0000", datetime(2024, 5, 1, 10), False),
        ("%d.%m.%Y %H:%M %z", None, "01.05.2024 10:00 +0200", datetime(2024, 5, 1, 8), True),
        ("%Y %f", None, "2024 500000", datetime(2024, 1, 1, 0, 0, 0, 500_000), False),
    ],
)
def test_timestamp_in_pattern_is_restored(
    format: str, zone: str | None, text: str, value: datetime, is_respelled: bool
) -> None:
    found = assert_fits(create_codec("timestamp", format, zone), f'"{text}"', is_respelled=is_respelled)
    assert found == value.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("sql_type", "text"),
    [
        ("array<bigint>", "[1, null, 2]"),
        ("array<bigint>", "[]"),
        ("array<json>", '[1, "a", null, {}]'),
        ("array<array<boolean>>", "[[true], [], null]"),
        ("map<string, bigint>", '{"a": 1, "": 2}'),
        ("map<string, bigint>", "{}"),
        ("map<string, array<double>>", '{"a": [0.5], "b": []}'),
        ("struct<a: bigint, b: string>", '{"b": "x"}'),
        ("struct<a: bigint>", "{}"),
        ("struct<`a b`: decimal(5,2), s: struct<t: timestamp>>", '{"a b": 1.5, "s": {"t": "2024-05-01T10:00:00Z"}}'),
    ],
)
def test_nested_value_is_restored(sql_type: str, text: str) -> None:
    assert_fits(create_codec(sql_type), text)


@pytest.mark.parametrize(
    ("sql_type", "text", "kept", "leftover"),
    [
        ("array<bigint>", '[1, "a"]', [1, None], [1, "a"]),
        ("map<string, bigint>", '{"a": 1, "b": "x"}', [("a", 1), ("b", None)], {"b": "x"}),
        ("struct<a: bigint, b: bigint>", '{"a": 1, "b": "x"}', {"a": 1, "b": None}, {"b": "x"}),
        ("struct<s: struct<a: bigint>>", '{"s": {"a": "x"}}', {"s": {"a": None}}, {"s": {"a": "x"}}),
    ],
)
def test_nested_misfit_is_left_over_and_rest_is_kept(sql_type: str, text: str, kept: Any, leftover: Any) -> None:
    codec = create_codec(sql_type)
    adapted = codec.adapt(msgspec.json.decode(text))
    assert (adapted.leftover, adapted.has_misfit) == (leftover, True)
    assert codec.build([adapted.value], is_adapted=True).array.to_pylist() == [kept]


def test_unknown_nested_field_is_left_over_or_dropped() -> None:
    column = Column("c", parse_sql_type("struct<a: int>").data_type, ("c",))
    value = {"a": 1, "new": 2, "none": None}
    kept = create_column_codec(column).adapt(value)
    assert (kept.leftover, kept.has_misfit) == ({"new": 2}, False)
    assert create_column_codec(column, CodecOptions(drops_unknown=True)).adapt(value).leftover is NOTHING


def test_respelled_nested_value_is_left_over_without_misfit() -> None:
    codec = create_codec("struct<t: timestamp, n: bigint>")
    adapted = codec.adapt({"t": "2024-05-01", "n": 1})
    assert (adapted.leftover, adapted.has_misfit) == ({"t": "2024-05-01"}, False)
    (built,) = codec.build([adapted.value], is_adapted=True).array.to_pylist()
    assert built == {"t": datetime(2024, 5, 1, tzinfo=UTC), "n": 1}


@pytest.mark.parametrize(
    ("sql_type", "format", "value", "cast"),
    [
        ("boolean", None, "true", True),
        ("bigint", None, "5", 5),
        ("bigint", None, 5.0, 5),
        ("double", None, "1e2", 100.0),
        ("decimal(5,2)", None, "1.50", Decimal("1.50")),
        ("bigint", "string", 5, 5),
        ("string", None, 5, "5"),
        ("string", None, {"a": [1]}, '{"a":[1]}'),
        ("timestamp", "epoch_s", "60", datetime(1970, 1, 1, 0, 1, tzinfo=UTC)),
    ],
)
def test_cast_converts_value_of_other_type(sql_type: str, format: str | None, value: Any, cast: Any) -> None:
    codec = create_codec(sql_type, format)
    with pytest.raises(BUILD_ERRORS):
        codec.adapt(value)
    adapted = codec.adapt(value, cast=True)
    assert codec.build([adapted.value], is_adapted=True).array.to_pylist() == [cast]


@pytest.mark.parametrize(
    ("sql_type", "value"),
    [
        ("boolean", "yes"),
        ("boolean", 1),
        ("bigint", 1.5),
        ("bigint", "5.0"),
        ("bigint", "0x5"),
        ("double", ""),
        ("date", 5),
    ],
)
def test_cast_rejects_value_that_would_change(sql_type: str, value: Any) -> None:
    with pytest.raises(BUILD_ERRORS):
        create_codec(sql_type).adapt(value, cast=True)


def test_misfits_are_found_among_many_values() -> None:
    values: list[int | None] = [None if row % 7 == 0 else row for row in range(1000)]
    wrong = [0, 1, 500, 998, 999]
    for row in wrong:
        values[row] = 2**70
    built, misfits = build_with_misfits(create_codec("bigint"), values)
    assert misfits == wrong
    assert built.array.to_pylist() == [None if row in wrong else value for row, value in enumerate(values)]


def test_respelled_rows_are_found_next_to_misfits() -> None:
    texts = ["2024-05-01T10:00:00Z", None, "2024-05-01", "x", "2024-05-01T10:00:00Z", "2024-05-01 10:00", "y"]
    built, misfits = build_with_misfits(create_codec("timestamp"), texts)
    assert (misfits, built.respelled_rows) == ([3, 6], (2, 5))


@pytest.mark.parametrize(
    "sql_type", ["timestamp", "timestamp_ntz", "date", "double", "decimal(5,2)", "map<string, int>"]
)
def test_column_without_values_is_null(sql_type: str) -> None:
    codec = create_codec(sql_type)
    assert codec.build([]).array.to_pylist() == []
    assert codec.build([codec.missing] * 3).array.to_pylist() == [None] * 3


@pytest.mark.parametrize(
    ("sql_type", "format", "zone", "reason"),
    [
        ("boolean", "x", None, "this type has no formats"),
        ("string", "base64", None, "expected json"),
        ("binary", "hexx", None, "did you mean 'hex'?"),
        ("bigint", "text", None, "expected number or string"),
        ("date", "epoch_ms", None, "expected iso8601 or epoch_days or a strptime pattern"),
        ("timestamp", "epoch", None, "did you mean 'epoch_"),
        ("timestamp_ntz", "%Y %z", None, "remove %z from the format, or use timestamp"),
        ("timestamp_ntz", None, "Europe/Berlin", "only columns of type timestamp have a time zone"),
        ("date", None, "UTC", "only columns of type timestamp have a time zone"),
        (
            "timestamp",
            None,
            "Europe/Berlyn",
            "unknown time zone 'Europe/Berlyn'; expected a name such as Europe/Berlin",
        ),
        ("timestamp", None, "../etc/passwd", "unknown time zone"),
        ("timestamp", None, "", "unknown time zone ''"),
        ("array<int>", "json", None, "this type has no formats"),
        ("date", "%Q", None, "invalid format '%Q': 'Q' is a bad directive"),
        ("timestamp", "%s", None, "invalid format '%s'"),
        ("timestamp", "100%", None, "invalid format '100%'"),
        ("timestamp_ntz", "%-d.%m.%Y", None, "invalid format"),
        ("timestamp", "%Y %Y", None, "invalid format '%Y %Y': redefinition of group name"),
        ("timestamp", "%G-%V", None, "invalid format '%G-%V'"),
    ],
)
def test_invalid_format_or_zone_is_reported_in_one_line(
    sql_type: str, format: str | None, zone: str | None, reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        create_codec(sql_type, format, zone)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sql_type", "format"),
    [
        ("date", "%d.%m.%Y"),
        ("date", "%Y-%m-%dT%H:%M:%S%z"),
        ("date", "%j %y"),
        ("timestamp", "%a, %d %b %Y %H:%M:%S %Z"),
        ("timestamp", "%I:%M:%S.%f %p %%Y %Y"),
        ("timestamp_ntz", "%c"),
        ("timestamp_ntz", "%G-W%V-%u"),
        ("timestamp_ntz", "%H:%M"),
    ],
)
def test_valid_pattern_is_accepted(sql_type: str, format: str) -> None:
    assert create_codec(sql_type, format)


def test_unsupported_arrow_type_is_rejected() -> None:
    with pytest.raises(ConfigError, match="is not supported"):
        create_column_codec(Column("c", pa.time32("s"), ("c",)))
