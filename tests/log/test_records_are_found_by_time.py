"""ListOffsets by timestamp and the record with the largest timestamp, against a plain search."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from chronik.log.config import LogConfig
from chronik.log.times import TimedOffset

from .world import NOW_MS, World, batch, records_of

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=120)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=30), st.integers(0, 30), st.booleans())
def test_the_first_record_not_older_is_found_as_a_plain_search_finds_it(
    times: list[int], deleted: int, restart: bool
) -> None:
    world = World(config=CONFIG)
    for time in times:
        world.append(batch(b"a", b"b", timestamp=NOW_MS + time * 10), epoch=3)
    world.log.delete_records_before(min(deleted, world.log.log_end_offset))
    world.sync()
    log = world.reopened().log if restart else world.log
    records = records_of(log)
    for wanted in range(NOW_MS - 1, NOW_MS + 520, 7):
        expected = next((TimedOffset(r.offset, r.timestamp, 3) for r in records if r.timestamp >= wanted), None)
        assert log.offset_for_timestamp(wanted) == expected
    newest = max(records, key=lambda record: (record.timestamp, -record.offset), default=None)
    assert log.max_timestamp_offset() == (TimedOffset(newest.offset, newest.timestamp, 3) if newest else None)


def test_records_are_found_by_time_without_reading_the_whole_segment() -> None:
    world = World(config=LogConfig())
    chance = random.Random(1)
    for number in range(2000):
        world.append(batch(chance.randbytes(100), timestamp=NOW_MS + number))
    pieces = list(world.log._segments.all[0].walk_from_time(NOW_MS + 1500, world.log.epochs))
    assert 500 <= len(pieces) < 550
    found = world.log.offset_for_timestamp(NOW_MS + 1500)
    assert found is not None
    assert found.offset == 1500
