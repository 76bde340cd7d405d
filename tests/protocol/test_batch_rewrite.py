"""Compaction and recompression of batches, which keep offsets and producer fields."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.protocol.batch import TimestampType, build_batch, parse_header, verify_crc
from chronik.protocol.batch_rewrite import filter_batch, recompress_batch, validate_records
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.compression import Codec
from chronik.protocol.errors import CorruptRecords, InvalidRecord, RecordsTooLarge
from chronik.protocol.record_scan import decompress_within_budget
from chronik.protocol.records import Record, decode_batch, encode_batch
from tests.run_size import sized

CODECS = list(Codec)
RECORDS = [Record(100 + index, 5_000 - 10 * index, b"k%d" % index, b"v" * index, (("h", b"x"),)) for index in range(10)]
PRODUCER = {"producer_id": 8, "producer_epoch": 1, "base_sequence": 30, "leader_epoch": 6}


def batch_of(records: list[Record], codec: Codec = Codec.NONE, **options: Any) -> bytes:
    return encode_batch(records, codec=codec, **{**PRODUCER, **options})


def within(limit: int) -> DecompressionBudget:
    return DecompressionBudget(limit, 1_000, limit)


@given(kept=st.sets(st.integers(100, 109), min_size=1), codec=st.sampled_from(CODECS))
@settings(max_examples=sized(50, 5000), deadline=None)
def test_filter_keeps_records_and_batch_offsets(kept: set[int], codec: Codec) -> None:
    batch = batch_of(RECORDS, codec)
    thinned = filter_batch(b"??" + batch, 2, lambda offset, key, is_tombstone: offset in kept)
    assert thinned is not None
    expected = [record for record in RECORDS if record.offset in kept]
    assert decode_batch(thinned) == expected
    before, after = parse_header(batch), parse_header(thinned)
    assert after == before._replace(
        batch_length=after.batch_length,
        crc=after.crc,
        record_count=len(kept),
        max_timestamp=max(record.timestamp for record in expected),
    )


def test_filter_keeping_all_records_returns_same_bytes() -> None:
    batch = batch_of(RECORDS, Codec.GZIP)
    assert filter_batch(batch, 0, lambda offset, key, is_tombstone: True) == batch


def test_filter_removing_all_records_returns_none_or_empty_batch() -> None:
    batch = batch_of(RECORDS, Codec.LZ4, transactional=True)
    assert filter_batch(batch, 0, lambda offset, key, is_tombstone: False) is None
    empty = filter_batch(batch, 0, lambda offset, key, is_tombstone: False, keep_empty=True)
    assert empty is not None
    header, before = parse_header(empty), parse_header(batch)
    assert verify_crc(empty, 0, len(empty))
    assert header.size == 61
    assert (header.base_offset, header.last_offset, header.last_sequence) == (100, 109, 39)
    assert (header.producer_id, header.producer_epoch, header.partition_leader_epoch) == (8, 1, 6)
    assert (header.record_count, header.codec, header.is_transactional) == (0, Codec.NONE, True)
    assert (header.base_timestamp, header.max_timestamp) == (before.max_timestamp, before.max_timestamp)
    assert decode_batch(empty) == []
    assert recompress_batch(*decompress_within_budget(empty, 0), Codec.ZSTD) == empty
    assert filter_batch(empty, 0, lambda offset, key, is_tombstone: True, keep_empty=True) == empty


def test_filter_keeps_log_append_time() -> None:
    batch = batch_of(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    thinned = filter_batch(batch, 0, lambda offset, key, is_tombstone: offset == 105)
    assert thinned is not None
    assert [record.timestamp for record in decode_batch(thinned)] == [5_000]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("horizon", [0, 4_000, 1_800_000_000_000])
def test_delete_horizon_is_set_once_and_changes_no_record(codec: Codec, horizon: int) -> None:
    records = [*RECORDS[:6], RECORDS[6]._replace(value=None), *RECORDS[7:]]
    marked = filter_batch(
        batch_of(records, codec), 0, lambda offset, key, is_tombstone: True, delete_horizon_ms=horizon
    )
    assert marked is not None
    assert parse_header(marked).delete_horizon_ms == horizon
    assert decode_batch(marked) == records
    again = filter_batch(marked, 0, lambda offset, key, is_tombstone: offset > 104, delete_horizon_ms=horizon + 1)
    assert again is not None
    assert parse_header(again).delete_horizon_ms == horizon
    assert decode_batch(again) == records[5:]


def test_delete_horizon_is_set_only_for_tombstones() -> None:
    batch = batch_of(RECORDS)
    assert filter_batch(batch, 0, lambda offset, key, is_tombstone: True, delete_horizon_ms=7) is batch


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_recompression_changes_only_the_codec(source: Codec, target: Codec) -> None:
    batch = batch_of(RECORDS, source, transactional=True)
    other = recompress_batch(*decompress_within_budget(b"!" + batch, 1), target)
    before, after = parse_header(batch), parse_header(other)
    attributes = before.attributes & ~7 | target
    assert after == before._replace(batch_length=after.batch_length, crc=after.crc, attributes=attributes)
    assert decode_batch(other) == RECORDS


@pytest.mark.parametrize("codec", CODECS)
def test_valid_records_pass_record_validation(codec: Codec) -> None:
    validate_records(*decompress_within_budget(batch_of(RECORDS, codec), 0), keys_required=True)


def test_record_without_required_key_is_rejected() -> None:
    batch = batch_of([*RECORDS[:4], RECORDS[4]._replace(key=None)])
    validate_records(*decompress_within_budget(batch, 0))
    with pytest.raises(InvalidRecord, match="key"):
        validate_records(*decompress_within_budget(batch, 0), keys_required=True)


def test_produced_records_with_offset_gap_are_rejected() -> None:
    with pytest.raises(InvalidRecord, match="101"):
        validate_records(*decompress_within_budget(batch_of([RECORDS[0], RECORDS[2]]), 0))


def test_record_validation_detects_damage_with_valid_checksum() -> None:
    batch = batch_of(RECORDS)
    with pytest.raises(CorruptRecords):
        validate_records(*decompress_within_budget(build_batch(parse_header(batch), batch[61:-1]), 0))


@pytest.mark.parametrize("codec", CODECS)
def test_all_decompressing_functions_respect_the_limit(codec: Codec) -> None:
    batch = batch_of([Record(0, 0, b"k", bytes(50_000))], codec)
    with pytest.raises(RecordsTooLarge):
        validate_records(*decompress_within_budget(batch, 0, within(50_000)))
    with pytest.raises(RecordsTooLarge):
        recompress_batch(*decompress_within_budget(batch, 0, within(50_000)), Codec.NONE)
    with pytest.raises(RecordsTooLarge):
        filter_batch(batch, 0, lambda offset, key, is_tombstone: True, budget=within(50_000))
    with pytest.raises(RecordsTooLarge):
        decode_batch(batch, limit=50_000)
    validate_records(*decompress_within_budget(batch, 0, within(50_020)))
