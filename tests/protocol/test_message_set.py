"""Conversion between record batches and the message sets of old clients."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import aiokafka.record.legacy_records as aiokafka_legacy
import kafka.record.legacy_records as kafka_legacy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from chronik.protocol.batch import TimestampType, parse_header, validate_produced_batches
from chronik.protocol.batch_rewrite import filter_batch, validate_records
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.compression import Codec, compress
from chronik.protocol.control_records import TransactionMarker, encode_transaction_marker_batch
from chronik.protocol.errors import CorruptRecords, ErrorCode, InvalidRecord, KafkaError, RecordsTooLarge
from chronik.protocol.message_set import convert_to_batches, convert_to_message_set, iter_message_set
from chronik.protocol.record_scan import decompress_within_budget
from chronik.protocol.records import Record, decode_batch, encode_batch, iter_records
from tests.run_size import sized

MAGICS = [0, 1]
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
# Other implementations lack the legacy LZ4 header checksum of magic 0, which has a separate test.
FORMS_OTHERS_KNOW = [(magic, codec) for magic in MAGICS for codec in OLD_CODECS if magic or codec is not Codec.LZ4]
SAMPLE = [
    Record(0, 1_700_000_000_000, b"key", b"value"),
    Record(1, 1_699_999_999_000, None, b""),
    Record(2, 1_700_000_900_000, b"", None),
    Record(3, 1_700_000_000_001, b"k" * 300, b"v" * 9_000),
]


def message(
    value: bytes | None,
    *,
    magic: int = 1,
    offset: int = 0,
    timestamp: int = 5,
    attributes: int = 0,
    key: bytes | None = None,
) -> bytes:
    fields = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for field in (key, value):
        fields += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(fields) + 4, zlib.crc32(fields)) + fields


def as_seen_with(magic: int, records: list[Record]) -> list[Record]:
    return [record._replace(headers=(), timestamp=record.timestamp if magic else -1) for record in records]


def refusal(buffer: bytes) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        convert_to_batches(buffer)
    return caught.value.code


@pytest.mark.parametrize(("magic", "codec"), FORMS_OTHERS_KNOW)
@pytest.mark.parametrize("library", [kafka_legacy, aiokafka_legacy], ids=["kafka-python", "aiokafka"])
def test_produced_message_set_is_converted_to_batch(library: Any, magic: int, codec: Codec) -> None:
    builder = library.LegacyRecordBatchBuilder(magic=magic, compression_type=int(codec), batch_size=1_000_000)
    for record in SAMPLE:
        builder.append(record.offset, timestamp=record.timestamp, key=record.key, value=record.value)
    (batch,) = convert_to_batches(bytes(builder.build()))
    (header,) = validate_produced_batches(batch)
    validate_records(*decompress_within_budget(batch, 0))
    assert header.codec == codec
    assert decode_batch(batch) == as_seen_with(magic, SAMPLE)


@pytest.mark.parametrize(("magic", "codec"), FORMS_OTHERS_KNOW)
def test_kafka_python_decodes_down_converted_records(magic: int, codec: Codec) -> None:
    records = [record._replace(offset=record.offset + 1000, headers=(("h", b"x"),)) for record in SAMPLE]
    read = []
    for batch in MemoryRecords(convert_to_message_set(encode_batch(records, codec=codec), magic)):
        assert batch.validate_crc()
        for each in batch:
            assert each.validate_crc()
            timestamp = -1 if each.timestamp is None else each.timestamp
            read.append(Record(each.offset, timestamp, each.key, each.value))
    assert read == as_seen_with(magic, records)


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_aiokafka_decodes_down_converted_records(codec: Codec) -> None:
    records = SAMPLE if codec else SAMPLE[:1]  # aiokafka decodes one message at a time, and a wrapper is one
    read = aiokafka_legacy.LegacyRecordBatch(convert_to_message_set(encode_batch(records, codec=codec), 1), 1)
    assert read.validate_crc()
    assert [Record(each.offset, each.timestamp, each.key, each.value) for each in read] == records


FIELD = st.none() | st.binary(max_size=100)
ROWS = st.lists(st.tuples(st.integers(1, 50), st.integers(-1, 2**62), FIELD, FIELD), min_size=1, max_size=20)


@given(rows=ROWS, first=st.integers(0, 2**62), codec=st.sampled_from(OLD_CODECS), magic=st.sampled_from(MAGICS))
@settings(max_examples=sized(50, 5000), deadline=None)
def test_down_and_up_conversion_preserves_records(rows: Any, first: int, codec: Codec, magic: int) -> None:
    records, offset = [], first
    for gap, timestamp, key, value in rows:
        records.append(Record(offset, timestamp, key, value, (("dropped", None),)))
        offset += gap
    message_set = convert_to_message_set(encode_batch(records, codec=codec), magic)
    seen = as_seen_with(magic, records)
    assert list(iter_message_set(message_set)) == seen
    (batch,) = convert_to_batches(message_set)
    assert parse_header(batch).codec == codec
    assert decode_batch(batch) == [record._replace(offset=index) for index, record in enumerate(seen)]


def test_magic_0_lz4_uses_legacy_header_checksum() -> None:
    message_set = convert_to_message_set(encode_batch(SAMPLE, codec=Codec.LZ4), 0)
    frame_start = message_set.index(b"\x04\x22\x4d\x18")
    frame = message_set[frame_start:]
    assert frame[6] == 0xEC
    right = message(frame[:6] + b"\xad" + frame[7:], magic=0, attributes=Codec.LZ4)
    for either in (message_set, right):
        (batch,) = convert_to_batches(either)
        assert decode_batch(batch) == as_seen_with(0, SAMPLE)


def test_encoded_message_matches_expected_bytes() -> None:
    batch = encode_batch([Record(7, 1_700_000_000_000, b"k", None)])
    tail = "000000016b ffffffff"  # the key, and no value
    assert convert_to_message_set(batch, 0) == bytes.fromhex("0000000000000007 0000000f 908204f6 00 00" + tail)
    assert convert_to_message_set(batch, 1) == bytes.fromhex(
        "0000000000000007 00000017 83e991c6 01 00 0000018bcfe56800" + tail
    )


def test_plain_messages_share_a_batch_and_wrappers_do_not() -> None:
    wrapper = message(compress(Codec.GZIP, message(b"c") + message(b"d", offset=1)), attributes=Codec.GZIP)
    plain = message(b"a") + message(b"b")
    batches = convert_to_batches(plain + wrapper + wrapper + plain)
    headers = validate_produced_batches(b"".join(batches))
    assert [(header.base_offset, header.record_count, header.codec) for header in headers] == [
        (0, 2, Codec.NONE),
        (2, 2, Codec.GZIP),
        (4, 2, Codec.GZIP),
        (6, 2, Codec.NONE),
    ]
    values = [record.value for record in iter_records(b"".join(batches))]
    assert values == [b"a", b"b", b"c", b"d", b"c", b"d", b"a", b"b"]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_down_conversion_keeps_offset_gaps(codec: Codec) -> None:
    records = [record._replace(offset=record.offset + 50) for record in SAMPLE]
    thinned = filter_batch(encode_batch(records, codec=codec), 0, lambda offset, key, is_tombstone: offset in (51, 53))
    assert thinned is not None
    for magic in MAGICS:
        assert [record.offset for record in iter_message_set(convert_to_message_set(thinned, magic))] == [51, 53]


def test_down_conversion_keeps_log_append_time() -> None:
    for codec in OLD_CODECS:
        batch = encode_batch(SAMPLE, codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME)
        message_set = convert_to_message_set(batch, 1)
        assert message_set[17] & 0x08
        assert {record.timestamp for record in iter_message_set(message_set)} == {1_700_000_900_000}


def test_wrapper_log_append_time_overrides_inner_timestamps() -> None:
    inside = message(b"x", offset=0, timestamp=1) + message(b"y", offset=1, timestamp=2)
    wrapper = message(compress(Codec.GZIP, inside), offset=11, timestamp=99, attributes=Codec.GZIP | 0x08)
    assert list(iter_message_set(wrapper)) == [Record(10, 99, None, b"x"), Record(11, 99, None, b"y")]


def test_down_conversion_skips_control_and_empty_batches() -> None:
    commit = TransactionMarker(True, 1)
    marker = encode_transaction_marker_batch(commit, timestamp=1, producer_id=1, producer_epoch=0, base_offset=4)
    empty = filter_batch(encode_batch([Record(5, 1)]), 0, lambda offset, key, is_tombstone: False, keep_empty=True)
    assert empty is not None
    tail = encode_batch([Record(6, 1, None, b"tail")])
    converted = convert_to_message_set(encode_batch(SAMPLE) + marker + empty + tail, 1)
    assert [record.offset for record in iter_message_set(converted)] == [0, 1, 2, 3, 6]


def test_down_conversion_skips_records_before_fetch_offset() -> None:
    batch = encode_batch(SAMPLE)
    assert [record.offset for record in iter_message_set(convert_to_message_set(batch, 1, first_offset=2))] == [2, 3]


@pytest.mark.parametrize("magic", MAGICS)
def test_down_conversion_replaces_zstd_with_gzip(magic: int) -> None:
    converted = convert_to_message_set(encode_batch(SAMPLE, codec=Codec.ZSTD), magic)
    (batch,) = convert_to_batches(converted)
    assert parse_header(batch).codec == Codec.GZIP
    assert list(iter_message_set(converted)) == as_seen_with(magic, SAMPLE)


def test_zstd_message_set_is_rejected() -> None:
    zstd = message(compress(Codec.ZSTD, message(b"x")), attributes=Codec.ZSTD)
    assert refusal(zstd) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refusal(message(b"", attributes=7)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("magic", MAGICS)
def test_every_bit_flip_covered_by_checksum_is_detected(magic: int) -> None:
    good = message(b"value", magic=magic, key=b"key")
    for position in range(12, len(good)):
        for bit in range(8):
            damaged = bytearray(good)
            damaged[position] ^= 1 << bit
            assert refusal(bytes(damaged)) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def test_damage_inside_wrapper_is_detected() -> None:
    inside = bytearray(message(b"value"))
    inside[-1] ^= 1
    wrapper = message(compress(Codec.GZIP, bytes(inside)), attributes=Codec.GZIP)
    assert refusal(wrapper) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", MAGICS)
def test_incomplete_message_set_is_corrupt(magic: int) -> None:
    good = message(b"value", magic=magic)
    for end in range(1, len(good)):
        assert refusal(good + good[:end]) is ErrorCode.CORRUPT_MESSAGE


def test_invalid_produced_messages_are_rejected() -> None:
    nested = message(compress(Codec.GZIP, message(compress(Codec.GZIP, message(b"x")), attributes=1)), attributes=1)
    mixed = message(compress(Codec.GZIP, message(b"x", magic=0)), attributes=1)
    for refused in (b"", nested, mixed, message(None, attributes=1), message(compress(Codec.GZIP, b""), attributes=1)):
        with pytest.raises(InvalidRecord):
            convert_to_batches(refused)
    assert refusal(encode_batch(SAMPLE)) is ErrorCode.INVALID_RECORD
    assert refusal(message(b"x", attributes=0x08)) is ErrorCode.INVALID_TIMESTAMP


def test_wrappers_share_the_limit() -> None:
    wrapper = message(compress(Codec.GZIP, message(bytes(10_000))), attributes=Codec.GZIP)
    assert len(convert_to_batches(wrapper * 3, DecompressionBudget(31_000, 1_000, 31_000))) == 3
    with pytest.raises(RecordsTooLarge):
        convert_to_batches(wrapper * 3, DecompressionBudget(30_000, 1_000, 30_000))
    with pytest.raises(RecordsTooLarge):
        list(iter_message_set(wrapper, limit=10_000))
    with pytest.raises(RecordsTooLarge):
        convert_to_message_set(
            encode_batch([Record(0, 0, None, bytes(9_000))], codec=Codec.LZ4), 1, DecompressionBudget(9_000, 1, 9_000)
        )


def test_invalid_lengths_are_corrupt() -> None:
    for length in (-2, 6, 2**31 - 1):
        fields = struct.pack(">bbqi", 1, 0, 5, -1) + struct.pack(">i", length) + b"value"
        lying = struct.pack(">qiI", 0, len(fields) + 4, zlib.crc32(fields)) + fields
        with pytest.raises(CorruptRecords):
            convert_to_batches(lying)
