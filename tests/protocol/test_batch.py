"""Validation and patching of produced batches by header and checksum, without decompression."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronik.protocol.batch import (
    HEADER_BYTES,
    BatchHeader,
    TimestampType,
    build_batch,
    iter_batches,
    next_sequence,
    parse_header,
    set_base_offset_and_epoch,
    set_log_append_time,
    validate_produced_batches,
    verify_crc,
)
from chronik.protocol.compression import Codec
from chronik.protocol.errors import CorruptRecords, ErrorCode, InvalidRecord, KafkaError
from chronik.protocol.records import Record, decode_batch, encode_batch

RECORDS = [Record(index, 1_700_000_000_000 + index, b"key", b"value %d" % index) for index in range(5)]
BATCH = encode_batch(RECORDS, producer_id=9, producer_epoch=2, base_sequence=40, leader_epoch=3)
HEADER = parse_header(BATCH)
BODY = BATCH[HEADER_BYTES:]


def altered(**fields: int) -> bytes:
    """Return the batch with other header fields and a valid checksum."""
    return build_batch(HEADER._replace(**fields), BODY)


def refusal(batch: bytes) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        validate_produced_batches(batch)
    return caught.value.code


def test_parsed_header_matches_encoded_batch() -> None:
    assert HEADER.base_offset == 0
    assert (HEADER.last_offset, HEADER.next_offset) == (4, 5)
    assert (HEADER.producer_id, HEADER.producer_epoch, HEADER.base_sequence, HEADER.last_sequence) == (9, 2, 40, 44)
    assert (HEADER.base_timestamp, HEADER.max_timestamp) == (1_700_000_000_000, 1_700_000_000_004)
    assert (HEADER.partition_leader_epoch, HEADER.record_count, HEADER.size) == (3, 5, len(BATCH))
    assert (HEADER.codec, HEADER.timestamp_type) == (Codec.NONE, TimestampType.CREATE_TIME)
    assert (HEADER.is_control, HEADER.is_transactional) == (False, False)
    assert HEADER.delete_horizon_ms is None


def test_valid_batches_pass_validation() -> None:
    assert validate_produced_batches(BATCH) == [HEADER]
    assert validate_produced_batches(memoryview(BATCH + BATCH)) == [HEADER, HEADER]


def test_every_bit_flip_covered_by_checksum_is_detected() -> None:
    for position in range(17, len(BATCH)):
        for bit in range(8):
            damaged = bytearray(BATCH)
            damaged[position] ^= 1 << bit
            assert not verify_crc(damaged, 0, len(damaged))
            assert refusal(bytes(damaged)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("end", [*range(1, HEADER_BYTES + 1), len(BATCH) - 1])
def test_incomplete_batch_is_corrupt(end: int) -> None:
    assert refusal(BATCH[:end]) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, len(BATCH) - 11, 2**31 - 1])
def test_invalid_batch_length_is_corrupt(length: int) -> None:
    assert refusal(BATCH[:8] + length.to_bytes(4, "big", signed=True) + BATCH[12:]) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"record_count": 4}, ErrorCode.INVALID_RECORD),
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"record_count": -1, "last_offset_delta": -2}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 2**31 - 1}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x08}, ErrorCode.INVALID_TIMESTAMP),
        ({"attributes": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"base_sequence": -1}, ErrorCode.INVALID_RECORD),
        ({"producer_epoch": -1}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x10, "producer_id": -1}, ErrorCode.INVALID_RECORD),
        ({"magic": 3}, ErrorCode.CORRUPT_MESSAGE),
        ({"magic": 1}, ErrorCode.INVALID_RECORD),
        ({"magic": 0}, ErrorCode.INVALID_RECORD),
    ],
)
def test_invalid_produced_batches_are_rejected(fields: dict[str, int], code: ErrorCode) -> None:
    assert refusal(altered(**fields)) is code


def test_empty_records_are_rejected() -> None:
    with pytest.raises(InvalidRecord):
        validate_produced_batches(b"")


def test_setting_offset_and_epoch_keeps_checksum_valid() -> None:
    stored = bytearray(b"??" + BATCH)
    set_base_offset_and_epoch(memoryview(stored), 2, 2**62, 77)
    header = parse_header(stored, 2)
    assert header == HEADER._replace(base_offset=2**62, partition_leader_epoch=77)
    assert verify_crc(stored, 2, header.size)
    assert [record.offset for record in decode_batch(stored, 2)] == [2**62 + index for index in range(5)]


def test_log_append_time_applies_to_every_record() -> None:
    stored = bytearray(BATCH)
    set_log_append_time(stored, 0, 42)
    header = parse_header(stored)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.max_timestamp, header.base_timestamp) == (42, HEADER.base_timestamp)
    assert [record.timestamp for record in decode_batch(stored)] == [42] * 5


def test_iter_batches_yields_positions_in_order() -> None:
    other = encode_batch(RECORDS[:2], base_offset=0)
    walked = list(iter_batches(BATCH + other + BATCH))
    assert [position for position, _ in walked] == [0, len(BATCH), len(BATCH) + len(other)]
    assert [header.record_count for _, header in walked] == [5, 2, 5]


def test_partial_tail_is_skipped_only_on_request() -> None:
    for end in (1, 11, HEADER_BYTES, len(BATCH) - 1):
        buffer = BATCH + BATCH[:end]
        assert len(list(iter_batches(buffer, partial_tail=True))) == 1
        with pytest.raises(CorruptRecords):
            list(iter_batches(buffer))


def test_negative_length_is_corrupt_even_with_partial_tail() -> None:
    with pytest.raises(CorruptRecords):
        list(iter_batches(BATCH[:8] + b"\xff" * 4 + BATCH[12:], partial_tail=True))


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_next_sequence_wraps_around_to_zero(sequence: int, increment: int) -> None:
    largest = 2**31 - 1
    expected = increment - (largest - sequence) - 1 if sequence > largest - increment else sequence + increment
    assert next_sequence(sequence, increment) == expected


def test_last_sequence_of_batch_wraps_around() -> None:
    assert HEADER._replace(base_sequence=2**31 - 2).last_sequence == 2
    assert HEADER._replace(base_sequence=-1).last_sequence == -1
    assert next_sequence(2**31 - 1) == 0


@given(
    st.builds(
        BatchHeader,
        *[st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (64, 32, 32)],
        st.just(2),
        st.just(0),
        *[st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64, 64, 64, 16, 32, 32)],
    ),
    st.binary(max_size=50),
)
def test_any_header_round_trips(header: BatchHeader, body: bytes) -> None:
    batch = build_batch(header, body)
    read = parse_header(batch)
    assert read == header._replace(batch_length=len(batch) - 12, crc=read.crc)
    assert verify_crc(batch, 0, len(batch))
    assert batch[HEADER_BYTES:] == body
