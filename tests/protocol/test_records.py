"""Encoding and decoding of records, compared with expected bytes, kafka-python and aiokafka."""

from __future__ import annotations

from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_records
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from chronik.protocol.batch import TimestampType, build_batch, iter_batches, parse_header, validate_produced_batches
from chronik.protocol.batch_rewrite import filter_batch, set_delete_horizon
from chronik.protocol.compression import Codec
from chronik.protocol.control_records import (
    ControlType,
    TransactionMarker,
    encode_transaction_marker_batch,
    parse_control_type,
    parse_transaction_marker,
    parse_transaction_marker_batch,
)
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.records import Record, decode_batch, encode_batch, iter_records
from tests.run_size import sized

CODECS = list(Codec)
INT64 = st.integers(-(2**63), 2**63 - 1)
FIELD = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=20), FIELD), max_size=4).map(tuple)

# Offsets ascend; gaps are left by compaction.
GAPS = st.integers(1, 3) | st.integers(1, 10_000)
ROWS = st.lists(st.tuples(GAPS, INT64, FIELD, FIELD, HEADERS), min_size=1, max_size=30)


def numbered(rows: list[tuple[int, int, bytes | None, bytes | None, Any]], first_offset: int = 0) -> list[Record]:
    records, offset = [], first_offset
    for gap, timestamp, key, value, headers in rows:
        records.append(Record(offset, timestamp, key, value, headers))
        offset += gap
    return records


SAMPLE = [
    Record(0, 1_700_000_000_000, b"key", b"value", (("trace", b"\x01\x02"), ("empty", b""), ("null", None))),
    Record(1, 1_699_999_999_000, None, b"", (("ünïcode", b"x"),)),
    Record(2, 1_700_000_900_000, b"", None),
    Record(3, 1_700_000_000_001, b"k" * 64, b"v" * 9_000),
]


@given(rows=ROWS, first_offset=st.integers(0, 2**62), codec=st.sampled_from(CODECS))
@settings(max_examples=sized(50, 5000), deadline=None)
def test_arbitrary_records_round_trip(rows: Any, first_offset: int, codec: Codec) -> None:
    records = numbered(rows, first_offset)
    batch = encode_batch(records, codec=codec)
    assert decode_batch(batch) == records
    assert decode_batch(b"xyz" + batch, 3) == records
    header = parse_header(batch)
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.record_count == len(records)


def test_encoded_batch_matches_expected_bytes() -> None:
    records = [
        Record(0, 1_700_000_000_000, b"k", b"v", (("h", None),)),
        Record(1, 1_700_000_000_100, None, b"w"),
    ]
    assert encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=7) == bytes.fromhex(
        "0000000000000000"  # base offset
        "00000046"  # length: 49 bytes of header and 21 of records
        "ffffffff"  # leader epoch
        "02"  # magic
        "17de8e24"  # checksum
        "0000"  # attributes
        "00000001"  # last offset delta
        "0000018bcfe56800"  # base timestamp
        "0000018bcfe56864"  # max timestamp
        "0000000000000001"  # producer id
        "0000"  # producer epoch
        "00000007"  # base sequence
        "00000002"  # records
        "16 00 00 00 02 6b 02 76 02 02 68 01"  # 11 bytes: attributes, both deltas, key, value, one header
        "10 00 c801 02 01 02 77 00"  # 8 bytes: 100 ms later, no key
    )


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_decodes_our_batches(codec: Codec) -> None:
    batch = encode_batch(SAMPLE, codec=codec, producer_id=5, producer_epoch=6, base_sequence=7, transactional=True)
    read = MemoryRecords(batch).next_batch()
    assert read.validate_crc()
    assert (read.producer_id, read.producer_epoch, read.base_sequence, read.is_transactional) == (5, 6, 7, True)
    assert [as_record(record) for record in read] == SAMPLE


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_decodes_our_batches(codec: Codec) -> None:
    read = aiokafka_records.DefaultRecordBatch(encode_batch(SAMPLE, codec=codec))
    assert read.validate_crc()
    assert [as_record(record) for record in read] == SAMPLE


LIBRARIES = pytest.mark.parametrize("library", [kafka_records, aiokafka_records], ids=["kafka-python", "aiokafka"])


def built_by(library: Any, codec: Codec, **producer: int) -> bytes:
    builder = library.DefaultRecordBatchBuilder(magic=2, compression_type=int(codec), batch_size=1_000_000, **producer)
    for record in SAMPLE:
        fields = {"timestamp": record.timestamp, "key": record.key, "value": record.value}
        builder.append(record.offset, headers=list(record.headers), **fields)
    return bytes(builder.build())


@pytest.mark.parametrize("codec", CODECS)
@LIBRARIES
def test_batches_of_other_clients_are_decoded(library: Any, codec: Codec) -> None:
    batch = built_by(library, codec, is_transactional=1, producer_id=123, producer_epoch=4, base_sequence=5)
    (header,) = validate_produced_batches(batch)
    assert header.codec == codec
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (123, 4, 8)
    assert header.is_transactional
    assert decode_batch(batch) == SAMPLE


@LIBRARIES
def test_uncompressed_batches_match_other_clients_bytes(library: Any) -> None:
    theirs = built_by(library, Codec.NONE, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1)
    ours = encode_batch(SAMPLE)
    epoch = slice(12, 16)  # some clients write 0 as the leader epoch, which the checksum does not cover
    assert theirs[: epoch.start] + theirs[epoch.stop :] == ours[: epoch.start] + ours[epoch.stop :]


def as_record(record: Any) -> Record:
    return Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


def test_iter_records_skips_control_batches() -> None:
    commit = TransactionMarker(True, 3)
    marker = encode_transaction_marker_batch(commit, timestamp=1, producer_id=7, producer_epoch=0, base_offset=4)
    tail = [Record(5, 6, None, b"after")]
    buffer = encode_batch(SAMPLE, codec=Codec.ZSTD) + marker + encode_batch(tail)
    assert list(iter_records(buffer)) == SAMPLE + tail
    assert list(iter_records(buffer[:-1], partial_tail=True)) == SAMPLE


@pytest.mark.parametrize("committed", [True, False])
def test_transaction_marker_round_trips(committed: bool) -> None:
    marker = TransactionMarker(committed, 12)
    batch = encode_transaction_marker_batch(
        marker, timestamp=99, producer_id=7, producer_epoch=2, base_offset=50, leader_epoch=4
    )
    header = parse_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.base_offset) == (7, 2, -1, 50)
    (record,) = decode_batch(batch)
    assert parse_control_type(record) is (ControlType.COMMIT if committed else ControlType.ABORT)
    assert parse_transaction_marker(record) == marker
    (theirs,) = MemoryRecords(batch).next_batch()
    assert (theirs.commit, theirs.abort) == (committed, not committed)


def test_marker_is_parsed_from_any_batch_encoding() -> None:
    marker = TransactionMarker(True, 12)
    plain = encode_transaction_marker_batch(marker, timestamp=99, producer_id=7, producer_epoch=2)
    (record,) = decode_batch(plain)
    longer = record._replace(headers=(("h", b"v"),))
    written = [
        plain,
        encode_batch([record], codec=Codec.ZSTD, control=True, transactional=True),
        encode_batch([longer], control=True, transactional=True),
        set_delete_horizon(plain, 0, 1_700_000_000_000),
    ]
    buffer = b"".join(written)
    positions = [position for position, _ in iter_batches(buffer)]
    assert [parse_transaction_marker_batch(buffer, position) for position in positions] == [marker] * 4
    assert parse_header(written[-1]).delete_horizon_ms == 1_700_000_000_000
    assert decode_batch(written[-1]) == [record]
    emptied = filter_batch(plain, 0, lambda *_: False, keep_empty=True)
    other = encode_batch([record._replace(key=b"\x00\x00\x00\x02")], control=True)
    assert emptied is not None
    assert [parse_transaction_marker_batch(bytes(emptied) + plain), parse_transaction_marker_batch(other)] == [
        None,
        None,
    ]


def test_other_control_records_are_not_markers() -> None:
    assert parse_transaction_marker(Record(0, 0, b"\x00\x00\x00\x02", b"")) is None
    assert parse_control_type(Record(0, 0, b"\x00\x00\x00\x63")) is ControlType.UNKNOWN
    for key, value in ((None, None), (bytes(3), None), (b"\xff\xff\x00\x00", None), (bytes(4), b"")):
        with pytest.raises(CorruptRecords):
            parse_transaction_marker(Record(0, 0, key, value))


def test_log_append_time_is_timestamp_of_all_records() -> None:
    batch = encode_batch(SAMPLE, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert {record.timestamp for record in decode_batch(batch)} == {1_700_000_900_000}


def test_header_names_with_invalid_utf8_are_replaced() -> None:
    batch = encode_batch([Record(0, 0, None, None, (("ab", b"v"),))])
    body = batch[61:].replace(b"ab", b"a\xff")
    (record,) = decode_batch(build_batch(parse_header(batch), body))
    assert record.headers == (("a\ufffd", b"v"),)


@pytest.mark.parametrize("offsets", [[], [1, 1], [2, 1], [0, 2**31]])
def test_encode_batch_rejects_offsets_beyond_batch_range(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="batch"):
        encode_batch([Record(offset, 0) for offset in offsets])


def test_encode_batch_rejects_base_offset_above_first_record() -> None:
    with pytest.raises(ValueError, match="batch"):
        encode_batch([Record(3, 0)], base_offset=4)
    assert [record.offset for record in decode_batch(encode_batch([Record(3, 0)], base_offset=1))] == [3]
