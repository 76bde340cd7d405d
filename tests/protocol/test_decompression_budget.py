"""Decompression bombs: the work for small batches is limited by a budget."""

from __future__ import annotations

import pytest

from chronik.limits import (
    CONVERTED_BYTES_MAX,
    CONVERTED_PER_FETCH_BYTES_MAX,
    INSPECTED_BYTES_MAX,
    INSPECTED_ON_LOOP_BYTES_MAX,
    INSPECTED_ON_LOOP_RECORDS_MAX,
    INSPECTED_RECORDS_MAX,
    RECORD_ERRORS_MAX,
)
from chronik.protocol.batch import HEADER_BYTES, Bytes, parse_header
from chronik.protocol.batch_rewrite import filter_batch, find_min_timestamp, recompress_batch, validate_records
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.compression import (
    COMPRESSION_CHUNK_BYTES,
    Codec,
    Compressor,
    compress,
    decompress,
    iter_decompressed_prefixes,
)
from chronik.protocol.errors import CorruptRecords, InvalidRecord, RecordsTooLarge
from chronik.protocol.message_set import convert_to_batches, convert_to_message_set, iter_message_set
from chronik.protocol.record_scan import decompress_within_budget, scan_records_lazily
from chronik.protocol.records import Record, decode_batch, encode_batch
from tests.abuse.bomb_records import (
    TIME_MS,
    batch_of_tiny_records,
    batch_with_large_record,
    batch_with_many_headers,
    encode_bomb_batch,
    encode_bomb_record,
    encode_field,
    magic_1_message,
    magic_1_messages,
)
from tests.run_size import sized

CODECS = list(Codec)
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
HEADERS_BYTES = 2_000_000  # ten records
KEYS_AND_VALUES = [Record(n, 1_000 + n, b"k%d" % n, b"v" * n if n % 3 else None, (("h", b"x"),)) for n in range(300)]


@pytest.mark.parametrize("codec", CODECS)
def test_scan_skips_record_headers(codec: Codec) -> None:
    budget = DecompressionBudget.for_request(0)
    validate_records(
        *decompress_within_budget(batch_with_many_headers(HEADERS_BYTES, codec), 0, budget), keys_required=True
    )
    assert budget.records_decompressed == 9
    assert HEADERS_BYTES * 0.8 < budget.bytes_decompressed < HEADERS_BYTES * 1.2


@pytest.mark.parametrize("codec", CODECS)
def test_scan_yields_same_values_as_decoder(codec: Codec) -> None:
    encoded = encode_batch(KEYS_AND_VALUES, codec=codec)
    seen = [
        (each[0], each[1], each[3], each[5])
        for each in scan_records_lazily(encoded, DecompressionBudget.for_request(0))
    ]
    assert seen == [
        (each.offset, each.timestamp, len(each.key or b""), -1 if each.value is None else len(each.value))
        for each in decode_batch(encoded)
    ]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_lazy_scan_decompresses_only_what_is_consumed(codec: Codec) -> None:
    bomb = batch_with_many_headers(20_000_000, codec, headers=1_000)
    budget = DecompressionBudget.for_request(len(bomb))
    assert next(scan_records_lazily(bomb, budget))[0] == 0
    assert budget.records_decompressed == 1
    assert budget.bytes_decompressed <= max(65_536, 4 * len(bomb))


@pytest.mark.parametrize("codec", CODECS)
def test_consecutive_batches_share_a_budget(codec: Codec) -> None:
    """Decompressed data counts once, and batches beyond the budget are rejected as too large."""
    records = [Record(n, 1_000, b"k", bytes(4_500)) for n in range(200)]
    encoded, whole = encode_batch(records, codec=codec), len(encode_batch(records)) - HEADER_BYTES
    budget = DecompressionBudget(whole + 1, 10**6, 10**6)
    assert len(list(scan_records_lazily(encoded, budget))) == 200
    assert (budget.bytes_decompressed, budget.bytes_left) == (whole, 1)
    budget.charge_bytes(1)
    for left in (0, -1):
        budget.bytes_left = left
        with pytest.raises(RecordsTooLarge):
            list(scan_records_lazily(encoded, budget))
        with pytest.raises(RecordsTooLarge):
            validate_records(*decompress_within_budget(encoded, 0, budget))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_batch_with_too_many_bytes_is_rejected(codec: Codec) -> None:
    limit = INSPECTED_BYTES_MAX if codec is Codec.ZSTD else sized(16 * COMPRESSION_CHUNK_BYTES, INSPECTED_BYTES_MAX)
    largest = batch_with_large_record(limit - 20, codec)
    capacity = DecompressionBudget(limit, 1, limit)
    validate_records(*decompress_within_budget(largest, 0, capacity), keys_required=True)
    assert limit - 20 < capacity.bytes_decompressed <= limit
    with pytest.raises(RecordsTooLarge):
        decompress_within_budget(batch_with_large_record(limit, codec), 0, DecompressionBudget(limit, 1, limit))


def test_budget_grows_with_request_size() -> None:
    nothing, much = DecompressionBudget.for_request(0), DecompressionBudget.for_request(7_000_000)
    assert (nothing.bytes_left, nothing.records_left) == (INSPECTED_BYTES_MAX, INSPECTED_RECORDS_MAX)
    assert much.max_output_bytes(1) == INSPECTED_BYTES_MAX + 2 * 7_000_000
    assert much.records_left == INSPECTED_RECORDS_MAX + 1_000_000


def test_batch_with_too_many_records_is_rejected_by_header() -> None:
    lying = encode_bomb_batch(
        [encode_bomb_record(0, encode_field(b"k") + encode_field(None) + b"\x00")],
        Codec.ZSTD,
        count=INSPECTED_RECORDS_MAX + 1,
    )
    budget = DecompressionBudget.for_request(0)
    with pytest.raises(RecordsTooLarge):
        validate_records(*decompress_within_budget(lying, 0, budget))
    assert budget.bytes_decompressed == 0
    budget.charge_records(INSPECTED_RECORDS_MAX)
    with pytest.raises(RecordsTooLarge):
        budget.charge_records(1)


@pytest.mark.parametrize("codec", CODECS)
def test_records_beyond_header_count_are_not_decoded(codec: Codec) -> None:
    tail = encode_field(b"k") + encode_field(None) + b"\x00"
    lying = encode_bomb_batch([encode_bomb_record(delta, tail) for delta in range(1_000)], codec, count=3)
    with pytest.raises(CorruptRecords, match="after the last record"):
        validate_records(*decompress_within_budget(lying, 0, DecompressionBudget(100_000, 3, 100_000)))


def test_event_loop_budget_is_smaller() -> None:
    validate_records(
        *decompress_within_budget(
            batch_of_tiny_records(INSPECTED_ON_LOOP_RECORDS_MAX, Codec.ZSTD), 0, DecompressionBudget.for_event_loop()
        )
    )
    with pytest.raises(RecordsTooLarge):
        validate_records(
            *decompress_within_budget(
                batch_of_tiny_records(INSPECTED_ON_LOOP_RECORDS_MAX + 1, Codec.ZSTD),
                0,
                DecompressionBudget.for_event_loop(),
            )
        )
    with pytest.raises(RecordsTooLarge):
        validate_records(
            *decompress_within_budget(
                batch_with_large_record(INSPECTED_ON_LOOP_BYTES_MAX, Codec.ZSTD),
                0,
                DecompressionBudget.for_event_loop(),
            )
        )
    validate_records(
        *decompress_within_budget(
            batch_with_large_record(INSPECTED_ON_LOOP_BYTES_MAX - 20, Codec.NONE),
            0,
            DecompressionBudget.for_event_loop(),
        )
    )


def test_empty_gzip_members_exceed_event_loop_budget() -> None:
    empty = compress(Codec.GZIP, b"") * 10_000
    with pytest.raises(RecordsTooLarge):
        convert_to_batches(magic_1_message(empty, 0, Codec.GZIP), DecompressionBudget.for_event_loop())


def test_number_of_tiny_snappy_blocks_is_limited() -> None:
    block = compress(Codec.SNAPPY, b"x")[16:]
    few = compress(Codec.SNAPPY, b"") + block * 64
    assert decompress(Codec.SNAPPY, few, 64) == b"x" * 64
    with pytest.raises(RecordsTooLarge):
        decompress(Codec.SNAPPY, few + block, 65)
    assert decompress(Codec.SNAPPY, few + block, 256) == b"x" * 65


def test_number_of_reported_invalid_records_is_limited() -> None:
    for records in (RECORD_ERRORS_MAX, RECORD_ERRORS_MAX + 1):
        with pytest.raises(InvalidRecord) as raised:
            validate_records(
                *decompress_within_budget(batch_of_tiny_records(records, Codec.ZSTD, key=None), 0), keys_required=True
            )
        assert raised.value.record_indexes == tuple(range(RECORD_ERRORS_MAX))


def test_recompression_beyond_size_limit_is_rejected() -> None:
    bomb = batch_with_large_record(1_000_000, Codec.ZSTD)
    assert len(recompress_batch(*decompress_within_budget(bomb, 0), Codec.NONE, size_max=1_001_000)) > 1_000_000
    with pytest.raises(RecordsTooLarge):
        recompress_batch(*decompress_within_budget(bomb, 0), Codec.NONE, size_max=1_000_000)


def test_min_timestamp_of_records_is_found() -> None:
    records = [Record(0, 9, b"k"), Record(1, 5, b"k"), Record(2, 7, b"k")]
    assert (
        find_min_timestamp(
            *decompress_within_budget(encode_batch(records, codec=Codec.LZ4), 0, DecompressionBudget.for_event_loop())
        )
        == 5
    )


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_filtered_batch_keeps_large_records_unchanged(codec: Codec) -> None:
    bomb = batch_with_many_headers(HEADERS_BYTES, codec)
    kept = filter_batch(
        bomb, 0, lambda offset, key, is_tombstone: offset % 2 == 0, DecompressionBudget.for_stored_batch(len(bomb))
    )
    assert kept is not None
    assert [each.offset for each in decode_batch(bytes(kept))] == [0, 2, 4, 6, 8]
    assert decode_batch(bytes(kept))[1] == decode_batch(bomb)[2]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "size", [0, 1, COMPRESSION_CHUNK_BYTES - 1, COMPRESSION_CHUNK_BYTES, 3 * COMPRESSION_CHUNK_BYTES + 5]
)
def test_streaming_compression_round_trips(codec: Codec, size: int) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    compressor = Compressor(codec)
    for start in range(0, size, 100_003):
        compressor.add(data[start : min(size, start + 100_003)])
    if size or codec is not Codec.SNAPPY:
        assert decompress(codec, bytes(compressor.finish())) == data[:size]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_decompressed_prefixes_grow_until_complete(codec: Codec) -> None:
    data = bytes(range(256)) * 20_000
    seen = [
        (bytes(each), is_whole) for each, is_whole in iter_decompressed_prefixes(codec, compress(codec, data), 10**8)
    ]
    assert [is_whole for _, is_whole in seen] == [False] * (len(seen) - 1) + [True]
    assert all(data.startswith(each) for each, _ in seen)
    assert seen[-1][0] == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_messages_count_against_record_budget(codec: Codec) -> None:
    sent = magic_1_messages(34 * 1_000, codec)
    budget = DecompressionBudget.for_request(len(sent))
    (converted,) = convert_to_batches(sent, budget)
    assert parse_header(converted).record_count == budget.records_decompressed == 1_000
    with pytest.raises(RecordsTooLarge):
        convert_to_batches(sent, DecompressionBudget(10**6, 999, 10**6))


def test_old_wrapper_message_beyond_conversion_limit_is_rejected() -> None:
    def wrapper(size: int) -> bytes:
        return magic_1_message(compress(Codec.GZIP, magic_1_message(bytes(size), 0, Codec.NONE)), 0, Codec.GZIP)

    assert len(convert_to_batches(wrapper(CONVERTED_BYTES_MAX - 34))) == 1
    with pytest.raises(RecordsTooLarge):
        convert_to_batches(wrapper(CONVERTED_BYTES_MAX - 33))


def test_plain_old_messages_are_limited_by_max_message_bytes() -> None:
    sent = magic_1_message(b"12345", 0, Codec.NONE) * 2
    assert len(convert_to_batches(sent, size_max=10)) == 1
    with pytest.raises(RecordsTooLarge):
        convert_to_batches(sent, size_max=9)


def in_slices(stored: Bytes, magic: int, size_max: int) -> list[Record]:
    """Read the records as an old client does, fetch by fetch."""
    read: list[Record] = []
    while slice_ := list(
        iter_message_set(convert_to_message_set(stored, magic, first_offset=len(read), size_max=size_max))
    ):
        assert slice_[0].offset == len(read)
        read += slice_
        if len(read) == parse_header(stored).record_count:
            break
    return read


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_down_conversion_may_return_part_of_a_batch(codec: Codec, magic: int) -> None:
    stored = encode_batch(KEYS_AND_VALUES, codec=codec)
    read = in_slices(stored, magic, size_max=1_000)
    assert [(each.offset, each.key, each.value) for each in read] == [
        (each.offset, each.key, each.value) for each in KEYS_AND_VALUES
    ]


def test_down_converted_size_stays_near_limit() -> None:
    stored = encode_batch([Record(n, TIME_MS, None, bytes(100_000)) for n in range(100)], codec=Codec.GZIP)
    (*_, last) = iter_message_set(convert_to_message_set(stored, 1))
    assert last.offset == CONVERTED_PER_FETCH_BYTES_MAX // 100_034


def test_down_conversion_stops_before_too_large_record() -> None:
    records = [Record(0, 1, None, b"small"), Record(1, 1, None, bytes(CONVERTED_BYTES_MAX + 1))]
    stored = encode_batch(records, codec=Codec.GZIP)
    assert [each.value for each in iter_message_set(convert_to_message_set(stored, 1))] == [b"small"]
    with pytest.raises(RecordsTooLarge):
        convert_to_message_set(stored, 1, first_offset=1)
    fits = encode_batch([Record(0, 1, None, bytes(CONVERTED_BYTES_MAX))], codec=Codec.GZIP)
    assert len(list(iter_message_set(convert_to_message_set(fits, 1)))) == 1
