"""ListOffsets by timestamp and by max timestamp, compared with a linear search."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.log import timestamp_lookup
from chronik.log.config import LogConfig
from chronik.log.timestamp_lookup import TimestampedOffset, find_record, find_record_or_batch_start
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.compression import Codec
from chronik.protocol.errors import RecordsTooLarge
from tests.abuse.bomb_records import encode_bomb_batch as batch_of
from tests.abuse.bomb_records import encode_bomb_record, encode_field
from tests.run_size import sized

from .harness import NOW_MS, LogHarness, batch, max_timestamp_offset, offset_for_timestamp, read_records

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=120)


@settings(max_examples=sized(40, 2000), deadline=None)
@given(st.lists(st.integers(0, 50), max_size=30), st.integers(0, 30), st.booleans())
def test_lookup_finds_same_record_as_linear_search(seconds: list[int], deleted: int, restart: bool) -> None:
    world = LogHarness(config=CONFIG)
    for second in seconds:
        world.append(batch(b"a", b"b", timestamp=NOW_MS + second * 10), epoch=3)
    world.log.delete_records_before(min(deleted, world.log.log_end_offset))
    world.sync()
    log = world.reopen().log if restart else world.log
    records = read_records(log)
    for wanted in range(NOW_MS - 1, NOW_MS + 520, 7):
        expected = next((TimestampedOffset(r.offset, r.timestamp, 3) for r in records if r.timestamp >= wanted), None)
        assert offset_for_timestamp(log, wanted) == expected
    newest = max(records, key=lambda record: (record.timestamp, -record.offset), default=None)
    assert max_timestamp_offset(log) == (TimestampedOffset(newest.offset, newest.timestamp, 3) if newest else None)


COMPACTED = LogConfig(
    segment_bytes=600,
    index_interval_bytes=120,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
    file_delete_delay_ms=0,
)


@pytest.mark.parametrize("is_index_old", [False, True])
def test_lookup_ignores_batches_emptied_by_compaction(is_index_old: bool) -> None:
    """Empty batches preserve a producer's last sequence and keep the timestamp of their removed records."""
    world = LogHarness(config=COMPACTED)
    world.append(batch(b"gone", key=b"k", producer_id=7, sequence=0))
    world.append(batch(b"v", key=b"k", timestamp=NOW_MS - 5_000, producer_id=8, sequence=0))
    world.append(batch(b"v", key=b"z", timestamp=NOW_MS - 4_000, producer_id=8, sequence=1))
    world.log.roll()
    world.complete_syncs()
    assert world.compact()
    segment = world.log._segments.all[0]
    segment.ensure_index(world.log.epochs)
    if is_index_old:
        segment.max_timestamp, segment.max_timestamp_offset = NOW_MS, 0
    assert [record.offset for record in read_records(world.log)] == [1, 2]
    assert offset_for_timestamp(world.log, NOW_MS - 100) is None
    assert offset_for_timestamp(world.log, NOW_MS - 4_500) == TimestampedOffset(2, NOW_MS - 4_000, 0)
    assert max_timestamp_offset(world.log) == TimestampedOffset(2, NOW_MS - 4_000, 0)


@settings(max_examples=sized(40, 2000), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 50)), max_size=25), st.booleans())
def test_lookup_in_compacted_log_matches_linear_search(written: list[tuple[int, int, int]], restart: bool) -> None:
    world = LogHarness(config=COMPACTED)
    sequences: Counter[int] = Counter()
    for producer, key, second in written:
        time_ms, sequence = NOW_MS + second * 10, sequences[producer]
        world.append(batch(b"v", key=b"%d" % key, timestamp=time_ms, producer_id=producer, sequence=sequence))
        sequences[producer] += 1
    if written:
        world.log.roll()
    world.complete_syncs()
    world.compact()
    world.complete_syncs()
    log = world.reopen().log if restart else world.log
    records = read_records(log)
    for wanted in range(NOW_MS - 1, NOW_MS + 520, 7):
        expected = next((TimestampedOffset(r.offset, r.timestamp, 0) for r in records if r.timestamp >= wanted), None)
        assert offset_for_timestamp(log, wanted) == expected
    newest = max(records, key=lambda record: (record.timestamp, -record.offset), default=None)
    assert max_timestamp_offset(log) == (TimestampedOffset(newest.offset, newest.timestamp, 0) if newest else None)


def test_lookup_does_not_read_whole_segment() -> None:
    world = LogHarness(config=LogConfig())
    chance = random.Random(1)
    for number in range(2000):
        world.append(batch(chance.randbytes(100), timestamp=NOW_MS + number))
    pieces = list(world.log._segments.all[0].scan_from_timestamp(NOW_MS + 1500, world.log.epochs))
    assert 500 <= len(pieces) < 550
    found = offset_for_timestamp(world.log, NOW_MS + 1500)
    assert found is not None
    assert found.offset == 1500


LATE_MS = NOW_MS + 1_000_000


def batch_with_wrong_max_timestamp(count: int, codec: Codec = Codec.NONE) -> bytearray:
    """Return a batch whose max timestamp belongs to none of its records."""
    tail = encode_field(b"k") + encode_field(None) + b"\x00"
    return bytearray(
        batch_of([encode_bomb_record(delta, tail) for delta in range(count)], codec, max_timestamp=LATE_MS)
    )


def test_lookup_stops_at_batch_with_wrong_max_timestamp() -> None:
    """A consumer that starts there misses nothing, and a wrong header does not cause a scan of the whole log."""
    world = LogHarness(config=LogConfig())
    for _ in range(5):
        world.append(batch_with_wrong_max_timestamp(3), epoch=3)
    world.append(batch(b"late", timestamp=LATE_MS), epoch=3)
    assert offset_for_timestamp(world.log, LATE_MS) == TimestampedOffset(0, LATE_MS, 3)
    assert max_timestamp_offset(world.log) == TimestampedOffset(0, LATE_MS, 3)
    world.log.delete_records_before(4)
    assert offset_for_timestamp(world.log, LATE_MS) == TimestampedOffset(6, LATE_MS, 3)


def test_lookup_beyond_budget_returns_start_of_batch() -> None:
    world = LogHarness(config=LogConfig())
    world.append(batch(b"early"), epoch=3)
    world.append(batch_with_wrong_max_timestamp(1_000), epoch=3)
    timed = world.log.find_batch_by_timestamp(LATE_MS, 0)
    assert timed is not None
    assert find_record_or_batch_start(timed, DecompressionBudget(10**6, 999, 10**6)) == TimestampedOffset(1, LATE_MS, 3)
    with pytest.raises(RecordsTooLarge):
        find_record(timed, DecompressionBudget(10**6, 999, 10**6))


@pytest.mark.parametrize("codec", list(Codec))
def test_lookup_decompresses_only_up_to_found_record(codec: Codec) -> None:
    world = LogHarness(config=LogConfig())
    values = [bytes(20_000)] * 200
    world.append(batch(*values, codec=codec))
    timed = world.log.find_batch_by_timestamp(NOW_MS + 1, 0)
    assert timed is not None
    budget = DecompressionBudget(10**8, 10**6, 10**8)
    assert find_record(timed, budget) == TimestampedOffset(1, NOW_MS + 1, 0)
    assert budget.records_decompressed == 2
    assert codec is Codec.NONE or budget.bytes_decompressed <= 800_000


def test_max_timestamp_lookup_searches_end_of_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamp_lookup, "MAX_TIMESTAMP_SEARCH_BYTES", 2_000)
    world = LogHarness(config=LogConfig(index_interval_bytes=120))
    world.append(batch(b"x", timestamp=LATE_MS))
    for number in range(1_000):
        world.append(batch(b"x" * 100, timestamp=NOW_MS + number))
    world.log.delete_records_before(1)
    timed = world.log.find_batch_with_max_timestamp(0)
    assert timed is not None
    assert find_record(timed, DecompressionBudget.for_event_loop()) == TimestampedOffset(1_000, NOW_MS + 999, 0)
