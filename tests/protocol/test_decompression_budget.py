"""Decompression bombs: the work for small batches is limited by a budget."""

from __future__ import annotations

import pytest

from chronik.limits import (
    CONVERTED_AT_ONCE_BYTES_MAX,
    CONVERTED_BYTES_MAX,
    OPENED_BYTES_MAX,
    OPENED_ON_LOOP_BYTES_MAX,
    OPENED_ON_LOOP_RECORDS_MAX,
    OPENED_RECORDS_MAX,
    RECORD_ERRORS_MAX,
)
from chronik.protocol.batch import HEADER_BYTES, Bytes, parse_header
from chronik.protocol.budget import Budget
from chronik.protocol.compression import PIECE_BYTES, Codec, Compressor, compress, decompress, prefixes
from chronik.protocol.errors import CorruptRecords, InvalidRecord, RecordsTooLarge
from chronik.protocol.message_set import convert_down, convert_up, iter_messages
from chronik.protocol.records import Record, decode_batch, encode_batch
from chronik.protocol.rewrite import oldest_timestamp, recompress, retain, validate_records
from chronik.protocol.skim import open_within, skim_as_far
from tests.abuse.bomb_records import (
    TIME_MS,
    batch,
    field,
    many_headers,
    old_message,
    old_messages,
    one_large_record,
    record,
    tiny_records,
)
from tests.long import count

CODECS = list(Codec)
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
HEADERS_BYTES = 2_000_000  # ten records
KEYS_AND_VALUES = [Record(n, 1_000 + n, b"k%d" % n, b"v" * n if n % 3 else None, (("h", b"x"),)) for n in range(300)]


@pytest.mark.parametrize("codec", CODECS)
def test_scan_skips_record_headers(codec: Codec) -> None:
    budget = Budget.for_bytes(0)
    validate_records(*open_within(many_headers(HEADERS_BYTES, codec), 0, budget), keys_required=True)
    assert budget.records_opened == 9
    assert HEADERS_BYTES * 0.8 < budget.bytes_opened < HEADERS_BYTES * 1.2


@pytest.mark.parametrize("codec", CODECS)
def test_scan_yields_same_values_as_decoder(codec: Codec) -> None:
    encoded = encode_batch(KEYS_AND_VALUES, codec=codec)
    seen = [(each[0], each[1], each[3], each[5]) for each in skim_as_far(encoded, Budget.for_bytes(0))]
    assert seen == [
        (each.offset, each.timestamp, len(each.key or b""), -1 if each.value is None else len(each.value))
        for each in decode_batch(encoded)
    ]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_lazy_scan_decompresses_only_what_is_consumed(codec: Codec) -> None:
    bomb = many_headers(20_000_000, codec, headers=1_000)
    budget = Budget.for_bytes(len(bomb))
    assert next(skim_as_far(bomb, budget))[0] == 0
    assert budget.records_opened == 1
    assert budget.bytes_opened <= max(65_536, 4 * len(bomb))


@pytest.mark.parametrize("codec", CODECS)
def test_consecutive_batches_share_a_budget(codec: Codec) -> None:
    """Decompressed data counts once, and batches beyond the budget are rejected as too large."""
    records = [Record(n, 1_000, b"k", bytes(4_500)) for n in range(200)]
    encoded, whole = encode_batch(records, codec=codec), len(encode_batch(records)) - HEADER_BYTES
    budget = Budget(whole + 1, 10**6, 10**6)
    assert len(list(skim_as_far(encoded, budget))) == 200
    assert (budget.bytes_opened, budget.bytes_left) == (whole, 1)
    budget.take_bytes(1)
    for left in (0, -1):
        budget.bytes_left = left
        with pytest.raises(RecordsTooLarge):
            list(skim_as_far(encoded, budget))
        with pytest.raises(RecordsTooLarge):
            validate_records(*open_within(encoded, 0, budget))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_batch_with_too_many_bytes_is_rejected(codec: Codec) -> None:
    limit = OPENED_BYTES_MAX if codec is Codec.ZSTD else count(16 * PIECE_BYTES, OPENED_BYTES_MAX)
    largest = one_large_record(limit - 20, codec)
    room = Budget(limit, 1, limit)
    validate_records(*open_within(largest, 0, room), keys_required=True)
    assert limit - 20 < room.bytes_opened <= limit
    with pytest.raises(RecordsTooLarge):
        open_within(one_large_record(limit, codec), 0, Budget(limit, 1, limit))


def test_budget_grows_with_request_size() -> None:
    nothing, much = Budget.for_bytes(0), Budget.for_bytes(7_000_000)
    assert (nothing.bytes_left, nothing.records_left) == (OPENED_BYTES_MAX, OPENED_RECORDS_MAX)
    assert much.bytes_from(1) == OPENED_BYTES_MAX + 2 * 7_000_000
    assert much.records_left == OPENED_RECORDS_MAX + 1_000_000


def test_batch_with_too_many_records_is_rejected_by_header() -> None:
    lying = batch([record(0, field(b"k") + field(None) + b"\x00")], Codec.ZSTD, count=OPENED_RECORDS_MAX + 1)
    budget = Budget.for_bytes(0)
    with pytest.raises(RecordsTooLarge):
        validate_records(*open_within(lying, 0, budget))
    assert budget.bytes_opened == 0
    budget.take_records(OPENED_RECORDS_MAX)
    with pytest.raises(RecordsTooLarge):
        budget.take_records(1)


@pytest.mark.parametrize("codec", CODECS)
def test_records_beyond_header_count_are_not_decoded(codec: Codec) -> None:
    tail = field(b"k") + field(None) + b"\x00"
    lying = batch([record(delta, tail) for delta in range(1_000)], codec, count=3)
    with pytest.raises(CorruptRecords, match="after the last record"):
        validate_records(*open_within(lying, 0, Budget(100_000, 3, 100_000)))


def test_event_loop_budget_is_smaller() -> None:
    validate_records(*open_within(tiny_records(OPENED_ON_LOOP_RECORDS_MAX, Codec.ZSTD), 0, Budget.on_loop()))
    with pytest.raises(RecordsTooLarge):
        validate_records(*open_within(tiny_records(OPENED_ON_LOOP_RECORDS_MAX + 1, Codec.ZSTD), 0, Budget.on_loop()))
    with pytest.raises(RecordsTooLarge):
        validate_records(*open_within(one_large_record(OPENED_ON_LOOP_BYTES_MAX, Codec.ZSTD), 0, Budget.on_loop()))
    validate_records(*open_within(one_large_record(OPENED_ON_LOOP_BYTES_MAX - 20, Codec.NONE), 0, Budget.on_loop()))


def test_empty_gzip_members_exceed_event_loop_budget() -> None:
    empty = compress(Codec.GZIP, b"") * 10_000
    with pytest.raises(RecordsTooLarge):
        convert_up(old_message(empty, 0, Codec.GZIP), Budget.on_loop())


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
            validate_records(*open_within(tiny_records(records, Codec.ZSTD, key=None), 0), keys_required=True)
        assert raised.value.indexes == tuple(range(RECORD_ERRORS_MAX))


def test_recompression_beyond_size_limit_is_rejected() -> None:
    bomb = one_large_record(1_000_000, Codec.ZSTD)
    assert len(recompress(*open_within(bomb, 0), Codec.NONE, size_max=1_001_000)) > 1_000_000
    with pytest.raises(RecordsTooLarge):
        recompress(*open_within(bomb, 0), Codec.NONE, size_max=1_000_000)


def test_min_timestamp_of_records_is_found() -> None:
    records = [Record(0, 9, b"k"), Record(1, 5, b"k"), Record(2, 7, b"k")]
    assert oldest_timestamp(*open_within(encode_batch(records, codec=Codec.LZ4), 0, Budget.on_loop())) == 5


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_filtered_batch_keeps_large_records_unchanged(codec: Codec) -> None:
    bomb = many_headers(HEADERS_BYTES, codec)
    kept = retain(bomb, 0, lambda offset, key, is_tombstone: offset % 2 == 0, Budget.for_stored(len(bomb)))
    assert kept is not None
    assert [each.offset for each in decode_batch(bytes(kept))] == [0, 2, 4, 6, 8]
    assert decode_batch(bytes(kept))[1] == decode_batch(bomb)[2]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES + 5])
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
    seen = [(bytes(each), is_whole) for each, is_whole in prefixes(codec, compress(codec, data), 10**8)]
    assert [is_whole for _, is_whole in seen] == [False] * (len(seen) - 1) + [True]
    assert all(data.startswith(each) for each, _ in seen)
    assert seen[-1][0] == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_messages_count_against_record_budget(codec: Codec) -> None:
    sent = old_messages(34 * 1_000, codec)
    budget = Budget.for_bytes(len(sent))
    (converted,) = convert_up(sent, budget)
    assert parse_header(converted).record_count == budget.records_opened == 1_000
    with pytest.raises(RecordsTooLarge):
        convert_up(sent, Budget(10**6, 999, 10**6))


def test_old_wrapper_message_beyond_conversion_limit_is_rejected() -> None:
    def wrapper(size: int) -> bytes:
        return old_message(compress(Codec.GZIP, old_message(bytes(size), 0, Codec.NONE)), 0, Codec.GZIP)

    assert len(convert_up(wrapper(CONVERTED_BYTES_MAX - 34))) == 1
    with pytest.raises(RecordsTooLarge):
        convert_up(wrapper(CONVERTED_BYTES_MAX - 33))


def test_plain_old_messages_are_limited_by_max_message_bytes() -> None:
    sent = old_message(b"12345", 0, Codec.NONE) * 2
    assert len(convert_up(sent, size_max=10)) == 1
    with pytest.raises(RecordsTooLarge):
        convert_up(sent, size_max=9)


def in_slices(stored: Bytes, magic: int, size_max: int) -> list[Record]:
    """Read the records as an old client does, fetch by fetch."""
    read: list[Record] = []
    while slice_ := list(iter_messages(convert_down(stored, magic, first_offset=len(read), size_max=size_max))):
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
    (*_, last) = iter_messages(convert_down(stored, 1))
    assert last.offset == CONVERTED_AT_ONCE_BYTES_MAX // 100_034


def test_down_conversion_stops_before_too_large_record() -> None:
    records = [Record(0, 1, None, b"small"), Record(1, 1, None, bytes(CONVERTED_BYTES_MAX + 1))]
    stored = encode_batch(records, codec=Codec.GZIP)
    assert [each.value for each in iter_messages(convert_down(stored, 1))] == [b"small"]
    with pytest.raises(RecordsTooLarge):
        convert_down(stored, 1, first_offset=1)
    fits = encode_batch([Record(0, 1, None, bytes(CONVERTED_BYTES_MAX))], codec=Codec.GZIP)
    assert len(list(iter_messages(convert_down(fits, 1)))) == 1
