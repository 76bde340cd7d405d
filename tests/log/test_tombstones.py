"""A tombstone is kept until the records that it deletes are durably removed."""

from __future__ import annotations

from msgspec.structs import replace

from chronik.log.compaction import BYTES_PER_KEY
from chronik.protocol.batch_rewrite import filter_batch
from chronik.protocol.records import iter_records

from .harness import NOW_MS, LogHarness, batch
from .test_compaction import (
    CONFIG,
    compact_all,
    contents,
    damage,
    records_from,
    write,
)


def test_tombstones_are_removed_after_delete_retention() -> None:
    world = LogHarness(config=CONFIG)
    write(world, b"a", b"1")
    write(world, b"b", b"2")
    write(world, b"a", None)
    compact_all(world)
    assert contents(world) == {b"b": b"2", b"a": None}
    world.clock.advance(59)
    write(world, b"c", b"3")
    compact_all(world)
    assert contents(world) == {b"b": b"2", b"a": None, b"c": b"3"}
    world.clock.advance(2)
    write(world, b"d", b"4")
    compact_all(world)
    assert contents(world) == {b"b": b"2", b"c": b"3", b"d": b"4"}


def test_tombstone_beyond_full_offset_map_is_kept() -> None:
    """Compactions that do not reach the tombstone have not removed the old value either."""
    keys_bytes = 4 * BYTES_PER_KEY
    world = LogHarness(config=replace(CONFIG, segment_bytes=100_000, delete_retention_ms=0))
    write(world, b"deleted", b"old value")
    compact_all(world)
    world.log.config = replace(world.log.config, compaction_keys_bytes_max=keys_bytes)
    for number in range(12):
        write(world, b"other %d" % number, b"v")
    write(world, b"deleted", None)
    for number in range(3):
        write(world, b"one more %d" % number, b"v")
    world.log.roll()
    world.complete_syncs()
    rounds = 0
    while world.compact():
        world.complete_syncs()
        world.clock.advance(1)
        rounds += 1
        assert contents(world).get(b"deleted") is None
    assert rounds > 3
    write(world, b"last", b"v")
    compact_all(world)
    assert b"deleted" not in contents(world)


def test_tombstone_is_removed_one_compaction_after_the_records_it_deletes() -> None:
    """Otherwise a power failure could lose the tombstone and keep the old values.

    A follower replicates expired tombstones, and its old values may be in another segment.
    """
    world = LogHarness(config=replace(CONFIG, delete_retention_ms=0))
    write(world, b"a", b"old value")
    world.log.roll()
    sent = filter_batch(batch(None, b"v", keys=[b"a", b"b"]), 0, lambda *_: True, delete_horizon_ms=NOW_MS - 1)
    assert sent is not None
    world.append(bytearray(sent))
    compact_all(world)
    assert contents(world) == {b"a": None, b"b": b"v"}
    write(world, b"c", b"v")
    compact_all(world)
    assert contents(world) == {b"b": b"v", b"c": b"v"}


def test_tombstones_of_keys_in_damaged_segment_are_kept() -> None:
    world = LogHarness(config=replace(CONFIG, segment_bytes=200, delete_retention_ms=0))
    write(world, b"deleted", b"old value")
    write(world, b"damaged", b"v")
    world.log.roll()
    write(world, b"deleted", None)
    world.log.roll()
    world.complete_syncs()
    damage(world, world.path(".log"))
    for number in range(3):
        write(world, b"other %d" % number, b"v")
        compact_all(world)
        world.clock.advance(1)
        assert [record.value for record in iter_records(world.log.read(0, 1, 1))] == [b"old value"]
        assert [record.key for record in records_from(world, 2) if record.value is None] == [b"deleted"]
        world.log.log_start_offset = 0
