"""Arbitrary bytes are decoded or rejected with an error code; no other exception is raised."""

from __future__ import annotations

import random
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable

import pytest

from chronik.protocol.batch import HEADER_BYTES, build_batch, parse_header, validate_produced_batches
from chronik.protocol.batch_rewrite import filter_batch, recompress_batch, validate_records
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.compression import Codec, compress
from chronik.protocol.control_records import (
    TransactionMarker,
    encode_transaction_marker_batch,
    parse_transaction_marker,
)
from chronik.protocol.errors import CorruptRecords, ErrorCode, KafkaError
from chronik.protocol.message_set import convert_to_batches, convert_to_message_set, iter_message_set
from chronik.protocol.record_scan import decompress_within_budget
from chronik.protocol.records import RECORD_HEADERS_MAX, Record, decode_batch, encode_batch, iter_records
from chronik.protocol.varint import encode_varint
from tests.run_size import sized

LIMIT = 1024 * 1024
CASES = sized(1_000, 30_000)
INTERESTING = [0, 1, 0x7F, 0x80, 0xFF]
SECONDS_MAX = 1.0  # for an input of a few kilobytes; detects hangs, not slow machines

HEADERS = (("h", b"x"), ("n", None))
RECORDS = [Record(index, 1_000 + index, b"k%d" % index, b"value" * index, HEADERS) for index in range(8)]


def within() -> DecompressionBudget:
    return DecompressionBudget(LIMIT, LIMIT, LIMIT)


Reader = Callable[[bytes], object]

BATCH_READERS: list[Reader] = [
    lambda buffer: list(iter_records(buffer, LIMIT)),
    lambda buffer: decode_batch(buffer, 0, LIMIT),
    lambda buffer: validate_records(*decompress_within_budget(buffer, 0, within())),
    lambda buffer: filter_batch(buffer, 0, lambda offset, *_: offset % 2 == 0, within(), delete_horizon_ms=7),
    lambda buffer: recompress_batch(*decompress_within_budget(buffer, 0, within()), Codec.LZ4),
    lambda buffer: convert_to_message_set(buffer, 0, within()),
    lambda buffer: convert_to_message_set(buffer, 1, within()),
]
SET_READERS: list[Reader] = [
    lambda buffer: list(iter_message_set(buffer, LIMIT)),
    lambda buffer: convert_to_batches(buffer, within()),
]


def mutated(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        position = rng.randrange(len(changed))
        match rng.randrange(5):
            case 0:
                changed[position] = rng.choice(INTERESTING)
            case 1:
                changed[position] ^= 1 << rng.randrange(8)
            case 2:
                del changed[position : position + rng.randint(1, 9)]
            case 3:
                changed[position:position] = rng.randbytes(rng.randint(1, 9))
            case _:
                changed[position : position + 4] = struct.pack(">i", rng.choice([-(2**31), -1, 0, 2**31 - 1]))
        if not changed:
            return b"\x00"
    return bytes(changed)


def outcomes(readers: list[Reader], inputs: list[bytes]) -> Counter[ErrorCode]:
    """Count the error codes over all inputs and readers; any other exception fails the test."""
    counts: Counter[ErrorCode] = Counter()
    for data in inputs:
        started = time.thread_time()
        for read in readers:
            try:
                read(data)
                counts[ErrorCode.NONE] += 1
            except KafkaError as error:
                counts[error.code] += 1
        assert time.thread_time() - started < SECONDS_MAX
    assert counts.total() == len(inputs) * len(readers)
    return counts


@pytest.mark.parametrize("codec", list(Codec))
def test_mutated_batches_raise_typed_errors(codec: Codec) -> None:
    rng = random.Random(int(codec))
    batch = encode_batch(RECORDS, codec=codec)
    inputs = [mutated(rng, batch) for _ in range(CASES)]
    assert outcomes([validate_produced_batches], inputs)[ErrorCode.CORRUPT_MESSAGE] > CASES // 2
    assert outcomes(BATCH_READERS, inputs)[ErrorCode.CORRUPT_MESSAGE] > len(BATCH_READERS) * CASES // 2


@pytest.mark.slow
@pytest.mark.parametrize("codec", list(Codec))
def test_mutated_records_with_valid_checksum_raise_typed_errors(codec: Codec) -> None:
    rng = random.Random(100 + codec)
    header, body = parse_header(encode_batch(RECORDS, codec=codec)), encode_batch(RECORDS)[HEADER_BYTES:]
    inputs = [build_batch(header, compress(codec, mutated(rng, body))) for _ in range(CASES // 2)]
    compressed = compress(codec, body)
    inputs += [build_batch(header, mutated(rng, compressed)) for _ in range(CASES // 2)]
    assert outcomes(BATCH_READERS, inputs)[ErrorCode.CORRUPT_MESSAGE] > len(BATCH_READERS) * CASES // 4


@pytest.mark.slow
def test_mutated_headers_with_valid_checksum_raise_typed_errors() -> None:
    rng = random.Random(200)
    batch = encode_batch(RECORDS)
    inputs = []
    for _ in range(CASES):
        changed = bytearray(batch)
        position = rng.choice([*range(8), *range(21, HEADER_BYTES)])
        changed[position] = rng.choice([*INTERESTING, rng.randrange(256)])
        inputs.append(build_batch(parse_header(changed), changed[HEADER_BYTES:]))
    assert outcomes(BATCH_READERS, inputs)[ErrorCode.CORRUPT_MESSAGE] > CASES // 4
    assert len(outcomes([validate_produced_batches], inputs)) >= 4


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_mutated_message_sets_raise_typed_errors(codec: Codec, magic: int) -> None:
    rng = random.Random(300 + codec)
    message_set = convert_to_message_set(encode_batch(RECORDS, codec=codec), magic)
    inputs = [mutated(rng, message_set) for _ in range(CASES)]
    inputs += [with_good_checksum(mutated(rng, message_set[12:])) for _ in range(CASES)]
    assert outcomes(SET_READERS, inputs)[ErrorCode.CORRUPT_MESSAGE] > CASES


def with_good_checksum(message: bytes) -> bytes:
    return struct.pack(">qiI", 0, len(message), zlib.crc32(message[4:])) + message[4:]


def test_random_bytes_raise_typed_errors() -> None:
    rng = random.Random(400)
    inputs = [rng.randbytes(rng.randrange(200)) for _ in range(CASES)]
    counts = outcomes([validate_produced_batches, *BATCH_READERS, *SET_READERS], inputs)
    assert counts[ErrorCode.NONE] < CASES // 10


def test_mutated_markers_raise_typed_errors() -> None:
    rng = random.Random(500)
    batch = encode_transaction_marker_batch(TransactionMarker(True, 1), timestamp=5, producer_id=1, producer_epoch=1)
    header, body = parse_header(batch), batch[HEADER_BYTES:]

    def read(buffer: bytes) -> None:
        for record in decode_batch(buffer, 0, LIMIT):
            parse_transaction_marker(record)

    counts = outcomes([read], [build_batch(header, mutated(rng, body)) for _ in range(CASES)])
    assert counts[ErrorCode.CORRUPT_MESSAGE] > CASES // 4


def corrupt(body: bytes, **fields: int) -> str:
    header = parse_header(encode_batch(RECORDS[:1]))._replace(**fields)
    with pytest.raises(CorruptRecords) as caught:
        decode_batch(build_batch(header, body))
    return caught.value.message


RECORD = encode_batch(RECORDS[:1])[HEADER_BYTES:]
EMPTY_RECORD = bytes([12, 0, 0, 0, 1, 1, 0])


def test_malformed_record_error_describes_the_fault() -> None:
    assert "after the last record" in corrupt(RECORD + b"\x00")
    assert "do not fit into" in corrupt(RECORD, record_count=2**31 - 1)
    assert "do not fit into" in corrupt(RECORD, record_count=-1)
    assert "offset 0 is not between 0 and" in corrupt(EMPTY_RECORD * 2, record_count=2, last_offset_delta=1)
    assert "varint has more than 32 bits" in corrupt(b"\xff" * 10 + RECORD)
    assert "varint has more than 32 bits" in corrupt(b"\xff\xff\xff\xff\x1f" + RECORD)
    assert "but 6 are left" in corrupt(b"\x0e" + EMPTY_RECORD[1:])
    assert "a field claims -2 bytes" in corrupt(bytes([12, 0, 0, 0, 3, 1, 0]))
    assert "a field claims 63 bytes" in corrupt(bytes([12, 0, 0, 0, 126, 1, 0]))
    assert "headers do not fit into" in corrupt(bytes([12, 0, 0, 0, 1, 1, 2]))
    assert "header has no name" in corrupt(bytes([16, 0, 0, 0, 1, 1, 2, 1, 1]))
    assert "end 1 bytes before the record" in corrupt(bytes([14, 0, 0, 0, 1, 1, 0, 0]))
    assert "invalid offsets -1" in corrupt(RECORD, base_offset=-1)


def test_number_of_record_headers_is_limited() -> None:
    def batch(count: int) -> bytes:
        fields = bytes([0, 0, 0, 1, 1]) + encode_varint(count) + b"\x00\x01" * count
        return build_batch(parse_header(encode_batch(RECORDS[:1])), encode_varint(len(fields)) + fields)

    (record,) = decode_batch(batch(RECORD_HEADERS_MAX))
    assert len(record.headers) == RECORD_HEADERS_MAX
    with pytest.raises(CorruptRecords, match="exceed the limit of"):
        decode_batch(batch(RECORD_HEADERS_MAX + 1))
