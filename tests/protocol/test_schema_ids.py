"""Schema ids in record keys, values and headers, as Confluent's serializers write them."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.errors import CorruptRecords, InvalidRecord, RecordsTooLarge
from chronik.protocol.record_scan import decompress_within_budget
from chronik.protocol.records import Record, encode_batch
from chronik.protocol.schema_ids import (
    RECORD_ERRORS_MAX,
    SCHEMAS_PER_BATCH_MAX,
    SchemaUsage,
    collect_schema_usage,
    parse_schema_header,
)

Headers = tuple[tuple[str, bytes | None], ...]

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")
GUID_HEADER = b"\x01" + GUID.bytes


def framed(schema_id: int, payload: bytes = b"payload") -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + payload


def collect(
    *records: tuple[bytes | None, bytes | None, Headers], keys: bool = True, values: bool = True
) -> SchemaUsage:
    batch = encode_batch([Record(index, 0, *record) for index, record in enumerate(records)])
    header, body = decompress_within_budget(batch, 0)
    return collect_schema_usage(header, body, DecompressionBudget.for_event_loop(), keys=keys, values=values)


def test_ids_are_collected_with_first_record() -> None:
    usage = collect(
        (framed(7), framed(1), ()), (framed(7), framed(2), ()), (framed(8), framed(1), ()), (None, framed(2**31), ())
    )
    assert usage == SchemaUsage(keys={7: 0, 8: 2}, values={1: 0, 2: 1, 2**31: 3}, unframed={})


@pytest.mark.parametrize(("keys", "values"), [(True, False), (False, True), (False, False)])
def test_only_selected_parts_are_examined(keys: bool, values: bool) -> None:
    usage = collect((framed(7) if keys else b"key", framed(1) if values else b"value", ()), keys=keys, values=values)
    assert usage == SchemaUsage({7: 0} if keys else {}, {1: 0} if values else {}, {})


def test_null_key_and_value_need_no_schema() -> None:
    assert collect((None, None, ())) == SchemaUsage({}, {}, {})


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x00\x00\x00\x01", b"\x01\x00\x00\x00\x01", b'{"a":1}'])
def test_value_without_id_is_unframed(value: bytes) -> None:
    usage = collect((None, framed(1), ()), (None, value, ()))
    assert usage.values == {1: 0}
    assert usage.unframed == {1: "the value does not start with a schema id"}


def test_header_takes_precedence_over_value() -> None:
    headers = (("trace", b"x" * 300), ("__value_schema_id", GUID_HEADER), ("__key_schema_id", framed(9, b"")))
    assert collect((b"plain", framed(1), headers)) == SchemaUsage(keys={9: 0}, values={GUID: 0}, unframed={})


def test_name_of_schema_header_inside_another_header_is_ignored() -> None:
    headers = (("note", b"__value_schema_id"), ("__value_schema_idX", GUID_HEADER), ("my__key_schema_id", GUID_HEADER))
    assert collect((framed(7), framed(1), headers)) == SchemaUsage({7: 0}, {1: 0}, {})


@pytest.mark.parametrize("value", [None, b"", b"\x01", framed(1), b"\x00" + GUID.bytes, b"\x02" + GUID.bytes])
def test_malformed_schema_header_makes_record_unframed(value: bytes | None) -> None:
    usage = collect((None, framed(1), (("__value_schema_id", value),)))
    assert usage.unframed == {0: "the header __value_schema_id has neither an id nor a GUID"}


def test_guid_in_front_of_key_or_value_is_collected() -> None:
    assert collect((GUID_HEADER + b"payload", GUID_HEADER, ())) == SchemaUsage({GUID: 0}, {GUID: 0}, {})
    assert collect((None, GUID_HEADER[:-1], ())).unframed == {0: "the value does not start with a schema id"}


def test_error_names_the_part_of_the_record() -> None:
    headers = (("__key_schema_id", b""),)
    usage = collect((b"key", framed(1), ()), (framed(1), framed(1), headers))
    assert usage.unframed == {
        0: "the key does not start with a schema id",
        1: "the header __key_schema_id has neither an id nor a GUID",
    }


def test_number_of_schemas_per_batch_is_limited() -> None:
    def collect_ids(count: int) -> SchemaUsage:
        records = [Record(index, 0, framed(2 * index), framed(2 * index + 1)) for index in range(count)]
        header, body = decompress_within_budget(encode_batch(records), 0)
        budget = DecompressionBudget.for_request(len(body))
        return collect_schema_usage(header, body, budget, keys=True, values=True)

    half = SCHEMAS_PER_BATCH_MAX // 2
    assert len(collect_ids(half).values) == half
    with pytest.raises(InvalidRecord, match="more than 1000 schemas") as error:
        collect_ids(half + 1)
    assert error.value.record_indexes == (half,)


def test_unframed_records_are_limited() -> None:
    usage = collect(*[(None, b"plain", ())] * (RECORD_ERRORS_MAX + 50))
    assert list(usage.unframed) == list(range(RECORD_ERRORS_MAX))


def test_headers_are_charged_to_budget() -> None:
    headers = (("__value_schema_id", GUID_HEADER), *[("", b"")] * 5_000)
    with pytest.raises(RecordsTooLarge):
        collect((None, b"plain", headers))


def test_many_headers_without_schema_are_not_parsed() -> None:
    assert collect((None, framed(1), tuple([("", b"")] * 5_000))).values == {1: 0}


@given(junk=st.binary(max_size=80), position=st.integers(0, 79))
def test_malformed_headers_raise_corrupt_records(junk: bytes, position: int) -> None:
    batch = encode_batch([Record(0, 0, None, None, (("__value_schema_id", GUID_HEADER + b"0" * 60),))])
    header, body = decompress_within_budget(batch, 0)
    damaged, start = bytearray(body), position % len(body)
    damaged[start : start + len(junk)] = junk
    try:
        usage = collect_schema_usage(
            header, bytes(damaged), DecompressionBudget.for_event_loop(), keys=True, values=True
        )
    except (CorruptRecords, RecordsTooLarge):
        return
    assert len(usage.unframed) + len(usage.values) <= 1


def test_schema_header_with_id_or_guid_is_parsed() -> None:
    assert parse_schema_header(framed(5, b"")) == 5
    assert parse_schema_header(GUID_HEADER) == GUID
