"""Tests that compare the vectorised decoder with the record-by-record decoder of `chronik.protocol`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.pipeline.records import decoder
from chronik.pipeline.records import decoder as decode_module
from chronik.pipeline.records.batches import StoredBatch, iter_batches
from chronik.pipeline.records.columns import NO_TIMESTAMP_TYPE, ColumnSelection, RecordColumns
from chronik.pipeline.records.decoder import HEADERS_MAX, decode_batches
from chronik.protocol.batch import HEADER_BYTES, TimestampType, build_batch, parse_header
from chronik.protocol.compression import Codec, compress
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.message_set import convert_to_message_set, iter_message_set
from chronik.protocol.records import Record, RecordHeader, decompress_batch, encode_batch, iter_records

MAX_OFFSET = 2**63 - 1
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMESTAMPS = st.one_of(st.integers(-1, 3), st.integers(1_700_000_000_000, 1_700_000_100_000), INT64)
FIELDS = st.one_of(st.none(), st.binary(max_size=12), st.binary(min_size=60, max_size=70), st.just(b"x" * 9000))
HEADERS = st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=70))), max_size=3)


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Generate consecutive batches, with gaps between offsets as compaction leaves them."""
    encoded, offset = [], draw(st.one_of(st.just(0), st.integers(0, 2**40)))
    for _ in range(draw(st.integers(1, 6))):
        base_offset = offset = offset + draw(st.integers(0, 3))
        records = []
        for _ in range(draw(st.one_of(st.integers(1, 5), st.just(20)))):
            headers = tuple(draw(HEADERS))
            records.append(Record(offset, draw(TIMESTAMPS), draw(FIELDS), draw(FIELDS), headers))
            offset += draw(st.one_of(st.just(1), st.integers(1, 200)))
        timestamp_type = draw(st.sampled_from(TimestampType))
        codec = draw(st.sampled_from(Codec))
        encoded.append(encode_batch(records, base_offset=base_offset, codec=codec, timestamp_type=timestamp_type))
    return encoded


def decode_columns(buffer: bytes, start: int = 0, end: int = MAX_OFFSET) -> list[RecordColumns]:
    columns = list(decode_batches(buffer, iter_batches(buffer), start, end))
    for each in columns:
        for column in each:
            assert column is not None
            column.validate(full=True)
    return columns


def to_records(columns: Iterable[RecordColumns]) -> list[Record]:
    return [
        Record(offset, timestamp, key, value, _pairs(headers))
        for each in columns
        for offset, timestamp, _, key, value, headers in zip(*map(_to_list, each), strict=True)
    ]


def _to_list(column: Any) -> list[Any]:
    return list(column.to_pylist())


def _pairs(headers: Sequence[dict[str, Any]] | None) -> tuple[RecordHeader, ...]:
    assert headers != [], "a record without headers must have null"
    return tuple((header["key"], header["value"]) for header in headers or ())


@pytest.fixture
def only_vectorised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the record-by-record fallback, which would hide failures of the vectorised decoder."""

    def fail(*_: object) -> None:
        raise AssertionError("not decoded by the vectorised decoder")

    monkeypatch.setattr(decode_module, "iter_records_of_batches", fail)


SCAN_LIMITS = {
    "sequential": {"PARALLEL_SCANS_MIN": 10**9},
    "parallel": {"PARALLEL_SCANS_MIN": 0},
    "split": {"PARALLEL_SCANS_MIN": 0, "RECORDS_PER_SCAN": 2},
    "split at wrong positions": {
        "PARALLEL_SCANS_MIN": 0,
        "RECORDS_PER_SCAN": 2,
        "CHAIN_RECORDS": 1,
        "WINDOW_RECORDS": 20,
    },
}


@pytest.mark.slow
@pytest.mark.usefixtures("only_vectorised")
@pytest.mark.parametrize("limits", SCAN_LIMITS.values(), ids=SCAN_LIMITS)
def test_decoded_records_equal_encoded_records(limits: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(decoder, name, value)

    @settings(deadline=None, max_examples=25)
    @given(batches())
    def check(encoded: list[bytes]) -> None:
        buffer = b"".join(encoded)
        expected = list(iter_records(buffer))
        assert expected
        assert to_records(decode_columns(buffer)) == expected

    check()


@pytest.mark.usefixtures("only_vectorised")
@pytest.mark.parametrize(
    "payload",
    [b"", b"x" * 90, bytes(90), encode_batch([Record(number, 0, b"k") for number in range(20)])[HEADER_BYTES:], None],
    ids=["empty", "text", "zeros", "encoded records", "various sizes"],
)
def test_long_batches_decode_even_if_values_look_like_records(payload: bytes | None) -> None:
    """Values that look like records can make a scan start at a wrong position."""
    count = 3 * decoder.RECORDS_PER_SCAN * decoder.PARALLEL_SCANS_MIN // 8
    records = [
        Record(offset, offset // 3, b"k%d" % offset, b"y" * (offset * 7919 % 300) if payload is None else payload)
        for offset in range(8 * count)
    ]
    buffer = b"".join(encode_batch(records[first : first + count]) for first in range(0, len(records), count))
    assert to_records(decode_columns(buffer)) == records


@pytest.mark.slow
@pytest.mark.usefixtures("only_vectorised")
@settings(deadline=None, max_examples=25)
@given(batches(), st.data())
def test_offset_bounds_apply_within_a_batch(encoded: list[bytes], data: st.DataObject) -> None:
    buffer = b"".join(encoded)
    expected = list(iter_records(buffer))
    start = data.draw(st.integers(expected[0].offset, expected[-1].offset + 1))
    end = data.draw(st.integers(start, expected[-1].offset + 2))
    assert to_records(decode_columns(buffer, start, end)) == [each for each in expected if start <= each.offset < end]


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(batches(), st.data())
def test_corrupt_batch_is_handled_like_in_protocol_decoder(encoded: list[bytes], data: st.DataObject) -> None:
    """A faulty producer may send any wrong byte or record count with a valid checksum."""
    number = data.draw(st.integers(0, len(encoded) - 1))
    header = parse_header(encoded[number])
    content = bytearray(_decompressed_body(encoded[number]))
    position = data.draw(st.integers(0, min(len(content), 300) - 1))
    content[position] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        header = header._replace(record_count=header.record_count + data.draw(st.sampled_from([-1, 1, 2**30])))
    encoded[number] = build_batch(header, compress(header.codec, bytes(content)))
    buffer = b"".join(encoded)
    try:
        expected = list(iter_records(buffer))
    except CorruptRecords as error:
        with pytest.raises(CorruptRecords, match=re.escape(str(error))):
            decode_columns(buffer)
    else:
        assert to_records(decode_columns(buffer)) == expected


def _decompressed_body(batch: bytes) -> bytes:
    return decompress_batch(batch)[1]


def test_timestamp_type_comes_from_batch() -> None:
    buffer = b"".join(
        encode_batch([Record(offset, 5), Record(offset + 1, 9)], timestamp_type=kind)
        for offset, kind in ((0, TimestampType.CREATE_TIME), (2, TimestampType.LOG_APPEND_TIME))
    )
    (columns,) = decode_columns(buffer)
    assert columns.timestamp_type.to_pylist() == [0, 0, 1, 1]
    assert columns.timestamp_ms.to_pylist() == [5, 9, 9, 9]


def test_batch_emptied_by_compaction_has_no_rows() -> None:
    empty = build_batch(parse_header(encode_batch([Record(5, 1)], codec=Codec.ZSTD))._replace(record_count=0), b"")
    buffer = encode_batch([Record(4, 1)]) + empty + encode_batch([Record(6, 1)])
    assert [record.offset for record in to_records(decode_columns(buffer))] == [4, 6]
    assert decode_columns(empty) == []


def test_record_with_too_many_headers_uses_slow_path() -> None:
    headers = tuple((f"name{number}", b"v") for number in range(HEADERS_MAX + 1))
    buffer = encode_batch([Record(0, 1, b"k", b"v", headers), Record(1, 1)])
    assert to_records(decode_columns(buffer)) == [Record(0, 1, b"k", b"v", headers), Record(1, 1)]


def test_invalid_utf8_in_header_name_is_replaced() -> None:
    batch = encode_batch([Record(0, 1, b"k", b"v", (("ab", b"c"),))])
    bad = build_batch(parse_header(batch), batch[HEADER_BYTES:].replace(b"ab", b"\xff\xfe"))
    assert to_records(decode_columns(bad)) == list(iter_records(bad))
    assert to_records(decode_columns(bad))[0].headers[0][0] == "\ufffd\ufffd"


def test_batch_with_wrong_checksum_is_rejected() -> None:
    batch = bytearray(encode_batch([Record(0, 1, b"key", b"value")]))
    batch[-2] ^= 1
    with pytest.raises(CorruptRecords, match="batch at offset 0: checksum mismatch"):
        decode_columns(bytes(batch))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_magic_0_and_1_messages_are_decoded(magic: int, codec: Codec) -> None:
    records = [Record(offset, 1000 + offset, b"k%d" % offset, None if offset == 2 else b"v") for offset in range(5)]
    old = convert_to_message_set(encode_batch(records, codec=codec), magic)
    buffer = old + encode_batch([Record(7, 1)])
    columns = decode_columns(buffer, 1)
    expected = [record for record in iter_message_set(old) if record.offset >= 1]
    assert to_records(columns) == [*expected, Record(7, 1)]
    kinds = [kind for each in columns for kind in each.timestamp_type.to_pylist()]
    assert kinds == [NO_TIMESTAMP_TYPE if magic == 0 else TimestampType.CREATE_TIME] * 4 + [0]


def test_incomplete_batch_at_end_of_buffer_is_ignored() -> None:
    whole = encode_batch([Record(0, 1, None, b"value")])
    for cut in range(1, len(whole)):
        assert len(list(iter_batches(whole + whole[:cut]))) == 1


def test_buffer_without_batch_is_rejected() -> None:
    with pytest.raises(CorruptRecords):
        list(iter_batches(bytes(100)))


def test_batches_are_decoded_in_groups_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_module, "DECODED_BYTES_MAX", 1000)
    buffer = b"".join(encode_batch([Record(offset, 1, None, bytes(400))]) for offset in range(7))
    groups = decode_columns(buffer)
    assert [len(group) for group in groups] == [2, 2, 2, 1]
    assert [record.offset for record in to_records(groups)] == list(range(7))


def test_unselected_columns_are_not_decoded() -> None:
    buffer = encode_batch([Record(0, 1, b"key", b"value", (("a", b"b"),))])
    stored: list[StoredBatch] = list(iter_batches(buffer))
    (columns,) = decode_batches(buffer, stored, 0, 1, ColumnSelection(key=False, value=True, headers=False))
    assert (columns.key, columns.headers) == (None, None)
    assert columns.value is not None
    assert columns.value.to_pylist() == [b"value"]
