"""Compaction compared with a dict, its limits, tombstones, and the records that it must not touch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from chronik.log.compaction import BYTES_PER_KEY
from chronik.log.config import LogConfig
from chronik.protocol.batch import iter_batches
from chronik.protocol.batch_rewrite import filter_batch
from chronik.protocol.compression import Codec
from chronik.protocol.control_records import TransactionMarker, encode_transaction_marker_batch
from chronik.protocol.records import Record, iter_records
from tests.run_size import sized

from .harness import NOW_MS, LogHarness, batch, read_records

CONFIG = LogConfig(
    segment_bytes=500,
    index_interval_bytes=100,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=60_000,
    file_delete_delay_ms=0,
)
DAY_S = 86_400

Write = tuple[int, int | None]


def write(world: LogHarness, key: bytes, value: bytes | None) -> None:
    world.append(batch(value, key=key, timestamp=world.clock.now_ms()))


def contents(world: LogHarness) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in read_records(world.log)}


def compact_all(world: LogHarness) -> None:
    """Compact all segments, including the active one."""
    if world.log._segments.all and world.log._segments.all[-1].size:
        world.log.roll()
    world.complete_syncs()
    world.compact()
    world.complete_syncs()


@settings(max_examples=sized(40, 2000), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.lists(st.tuples(st.integers(0, 8), st.one_of(st.none(), st.integers(0, 999))), min_size=1, max_size=5),
            st.sampled_from(["compact", "wait", "restart", "crash", "roll"]),
        ),
        max_size=40,
    ),
    st.sampled_from([0, 1, 4]),
)
def test_compacted_log_has_latest_value_of_each_key(steps: list[list[Write] | str], codec: int) -> None:
    world = LogHarness(config=CONFIG)
    model: dict[bytes | None, bytes | None] = {}
    for number, step in enumerate(steps):
        if isinstance(step, list):
            keys = [b"key %d" % key for key, _ in step]
            values = [None if value is None else b"value %d" % value for _, value in step]
            world.append(batch(*values, keys=keys, timestamp=world.clock.now_ms(), codec=codec))
            world.sync()
            model.update(zip(keys, values, strict=True))
        elif step == "compact":
            compact_all(world)
        elif step == "wait":
            world.clock.advance(120)
        elif step == "restart":
            world.close()
            world = world.reopen()
        elif step == "crash":
            world = world.reopen(world.simulated_files.crash(number))
        elif world.log._segments.all and world.log._segments.all[-1].size:
            world.log.roll()
        found = contents(world)
        alive = {key: value for key, value in model.items() if value is not None}
        assert {key: value for key, value in found.items() if value is not None} == alive
        assert all(model[key] is None for key, value in found.items() if value is None)
    compact_all(world)
    offsets = [record.offset for record in read_records(world.log)]
    keys_found = [record.key for record in read_records(world.log)]
    assert offsets == sorted(offsets)
    assert len(set(keys_found)) == len(keys_found)


def test_compacted_log_is_readable_from_every_offset() -> None:
    world = LogHarness(config=CONFIG)
    for number in range(60):
        write(world, b"%d" % (number % 3), b"%d" % number)
    compact_all(world)
    assert [record.offset for record in read_records(world.log)] == [57, 58, 59]
    next_offset = 0
    for offset in range(60):
        data = world.log.read(offset, 1, 60)
        (header,) = [header for _, header in iter_batches(data)]
        assert header.base_offset <= offset <= header.last_offset
        if offset == header.base_offset:
            assert offset == next_offset
            next_offset = header.next_offset
    assert next_offset == 60


def test_compaction_preserves_end_offsets_of_leader_epochs() -> None:
    world = LogHarness(config=CONFIG)
    for number in range(60):
        epoch = 3 if number < 10 else 5 if number < 45 else 6
        world.append(batch(b"%d" % number, key=b"k", timestamp=world.clock.now_ms()), epoch)
    compact_all(world)
    assert [record.offset for record in read_records(world.log)] == [59]
    offset = 0
    while offset < 60:
        for _, header in iter_batches(world.log.read(offset, 1, 60)):
            epoch, epoch_end = world.log.epochs.find_epoch_at(header.base_offset)
            assert header.partition_leader_epoch == epoch
            assert header.next_offset <= epoch_end
            assert world.log.find_end_offset_for_epoch(epoch) >= (epoch, header.next_offset)
            offset = header.next_offset


def test_compaction_merges_small_segments() -> None:
    world = LogHarness(config=CONFIG)
    for number in range(200):
        write(world, b"%d" % (number % 5), b"%d" % number)
    before = world.log.segment_count
    assert before > 10
    for _ in range(3):
        write(world, b"0", b"again")
        compact_all(world)
    assert world.log.segment_count <= 4
    assert world.log.size < 1000
    assert not [path for path in world.simulated_files.paths() if path.endswith((".cleaned", ".swap", ".deleted"))]


def test_keyless_records_beyond_full_offset_map_are_kept() -> None:
    world = LogHarness(config=replace(CONFIG, compaction_keys_bytes_max=BYTES_PER_KEY, segment_bytes=100_000))
    for key in (b"a", b"b", b"c", None):
        world.append(batch(b"v", key=key))
    world.log.roll()
    world.complete_syncs()
    assert world.compact()
    assert None in contents(world)


def test_delete_horizon_does_not_change_record_timestamps() -> None:
    world = LogHarness(config=CONFIG)
    world.append(batch(b"1", None, b"3", keys=[b"a", b"b", b"c"], timestamp=NOW_MS - 1000))
    compact_all(world)
    assert [(record.timestamp, record.value) for record in read_records(world.log)] == [
        (NOW_MS - 1000, b"1"), (NOW_MS - 999, None), (NOW_MS - 998, b"3"),
    ]  # fmt: skip


def test_records_within_min_compaction_lag_are_not_compacted() -> None:
    world = LogHarness(config=replace(CONFIG, min_compaction_lag_ms=10_000))
    write(world, b"a", b"1")
    write(world, b"a", b"2")
    world.log.roll()
    world.complete_syncs()
    assert not world.compact()
    world.clock.advance(11)
    assert world.compact()


def test_compaction_starts_at_dirty_ratio_or_max_compaction_lag() -> None:
    world = LogHarness(config=replace(CONFIG, min_cleanable_dirty_ratio=0.5))
    for number in range(20):
        write(world, b"%d" % number, bytes(50))
    compact_all(world)
    write(world, b"0", b"again")
    world.log.roll()
    world.complete_syncs()
    assert not world.compact()
    world.log.config = replace(world.log.config, max_compaction_lag_ms=DAY_S * 1000)
    assert not world.compact()
    world.clock.advance(DAY_S + 1)
    assert world.compact()


def test_active_segment_and_unsynced_records_are_not_compacted() -> None:
    world = LogHarness(config=replace(CONFIG, segment_bytes=100_000))
    for _ in range(3):
        write(world, b"a", b"x")
    world.complete_syncs()
    assert not world.compact()
    world.log.roll()
    write(world, b"b", b"y")
    assert world.log.begin_compaction(world.clock.now_ms(), up_to_offset=2) is None
    assert world.log.begin_compaction(world.clock.now_ms()) is not None


def test_log_without_compact_policy_is_not_compacted() -> None:
    world = LogHarness()
    for _ in range(20):
        write(world, b"a", b"x")
    world.complete_syncs()
    assert not world.compact()


def test_small_offset_map_compacts_in_several_rounds() -> None:
    world = LogHarness(config=replace(CONFIG, compaction_keys_bytes_max=5 * BYTES_PER_KEY))
    for round_number in range(2):
        for key in range(40):
            write(world, b"%d" % key, b"%d" % round_number)
    world.log.roll()
    world.complete_syncs()
    rounds = 0
    while world.compact():
        world.complete_syncs()
        rounds += 1
        assert rounds < 50
    assert rounds > 5
    assert contents(world) == {b"%d" % key: b"1" for key in range(40)}
    assert len(read_records(world.log)) <= 40 + 40


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_batch_with_more_keys_than_offset_map_is_compacted_in_several_rounds(codec: Codec) -> None:
    world = LogHarness(config=replace(CONFIG, compaction_keys_bytes_max=5 * BYTES_PER_KEY, segment_bytes=5_000))
    keys = [b"%d" % (number % 40) for number in range(80)]
    world.append(batch(*[b"%d" % number for number in range(80)], keys=keys, codec=codec))
    world.log.roll()
    world.complete_syncs()
    rounds = 0
    while (compaction := world.log.begin_compaction(world.clock.now_ms())) is not None:
        compaction.run()
        assert len(compaction._offset_map) <= 6
        assert world.log.complete_compaction(compaction)
        world.complete_syncs()
        rounds += 1
        assert rounds < 50
    assert rounds > 5
    assert contents(world) == {b"%d" % key: b"%d" % (40 + key) for key in range(40)}


def test_compacted_offset_survives_restart() -> None:
    world = LogHarness(config=CONFIG)
    for number in range(40):
        write(world, b"%d" % (number % 4), b"x")
    compact_all(world)
    assert world.log._checkpoints.compacted_offset == 40
    again = world.reopen(world.simulated_files.crash(1))
    assert again.log._checkpoints.compacted_offset == 40
    assert not again.compact()


def test_damaged_segment_is_not_compacted() -> None:
    world = LogHarness(config=replace(CONFIG, segment_bytes=400))
    for number in range(40):
        write(world, b"%d" % (number % 2), b"%d" % number)
    world.log.roll()
    world.complete_syncs()
    path = world.path(".log")
    data = damage(world, path)
    assert world.compact()
    world.complete_syncs()
    assert world.simulated_files.read(path) == data
    assert [record.value for record in records_from(world, 20)][-2:] == [b"38", b"39"]


def damage(world: LogHarness, path: str) -> bytes:
    """Damage the last batch of a file, and return the file's contents."""
    data = bytearray(world.simulated_files.read(path))
    data[-3] ^= 1
    inode = world.simulated_files._names[path]
    assert inode.content is not None
    inode.content[:] = data
    return bytes(data)


def records_from(world: LogHarness, offset: int) -> list[Record]:
    world.log.log_start_offset = offset
    return read_records(world.log)


def test_long_keys_are_distinguished() -> None:
    world = LogHarness(config=replace(CONFIG, segment_bytes=5000))
    keys = [bytes(100) + b"%d" % number for number in range(10)]
    for value in (b"old", b"new"):
        for key in keys:
            write(world, key, value)
    compact_all(world)
    assert contents(world) == dict.fromkeys(keys, b"new")
    assert len(read_records(world.log)) == 10


def test_other_control_batches_are_kept() -> None:
    world = LogHarness(config=CONFIG)
    write(world, b"a", b"1")
    marker = encode_transaction_marker_batch(
        TransactionMarker(is_commit=True, coordinator_epoch=1),
        timestamp=NOW_MS,
        producer_id=5,
        producer_epoch=0,
        base_offset=1,
        leader_epoch=0,
    )
    world.log.append_as_follower(marker)
    write(world, b"a", b"2")
    compact_all(world)
    headers = [header for _, header in iter_batches(world.log.read(1, 1000, 3))]
    assert headers[0].is_control
    assert contents(world) == {b"a": b"2"}


def test_last_sequence_of_producer_survives_compaction() -> None:
    world = LogHarness(config=CONFIG)
    for sequence in range(3):
        world.append(batch(b"%d" % sequence, key=b"a", producer_id=9, sequence=sequence))
    write(world, b"a", b"last")
    compact_all(world)
    assert contents(world) == {b"a": b"last"}
    files = world.simulated_files.kill()
    for path in [path for path in files.paths() if path.endswith(".snapshot")]:
        files.remove(path)
    again = LogHarness(files, CONFIG)
    producer = again.log.producers.get(9)
    assert producer is not None
    assert producer.batches[-1].last_sequence == 2


def test_appends_and_deletions_during_compaction_are_preserved() -> None:
    world = LogHarness(config=CONFIG)
    for number in range(40):
        write(world, b"%d" % (number % 4), b"%d" % number)
    world.log.roll()
    world.complete_syncs()
    job = world.log.begin_compaction(world.clock.now_ms())
    assert job is not None
    steps = job.steps()
    next(steps)
    write(world, b"new", b"value")
    for _ in steps:
        pass
    assert world.log.complete_compaction(job)
    assert contents(world)[b"new"] == b"value"
    world.complete_syncs()
    assert contents(world)[b"new"] == b"value"

    for number in range(40):
        write(world, b"%d" % (number % 4), b"%d" % number)
    world.log.roll()
    world.complete_syncs()
    job = world.log.begin_compaction(world.clock.now_ms())
    assert job is not None
    job.run()
    world.log.delete_records_before(60)
    world.complete_syncs()
    expected = read_records(world.log)
    world.log.complete_compaction(job)
    world.complete_syncs()
    assert read_records(world.log)[-4:] == expected[-4:]
    assert not [path for path in world.simulated_files.paths() if path.endswith((".cleaned", ".swap"))]


def test_compaction_is_discarded_after_truncation() -> None:
    world = LogHarness(config=CONFIG)
    for number in range(40):
        write(world, b"%d" % (number % 4), b"%d" % number)
    world.log.roll()
    world.complete_syncs()
    job = world.log.begin_compaction(world.clock.now_ms())
    assert job is not None
    job.run()
    world.log.truncate_to(20)
    expected = read_records(world.log)
    assert not world.log.complete_compaction(job)
    assert read_records(world.log) == expected
    assert not [path for path in world.simulated_files.paths() if path.endswith((".cleaned", ".swap"))]


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
