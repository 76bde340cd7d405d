"""Appends and reads across segments, and timestamps of offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.files import DiskFileSystem
from chronik.log.config import LogConfig
from chronik.log.partition_log import PartitionLog
from chronik.protocol.batch import iter_batches, parse_header
from chronik.protocol.errors import CorruptRecords, ErrorCode, KafkaError
from tests.files.simulated_files import SimulatedFile, SimulatedFileSystem

from .harness import FOLDER, NOW_MS, LogHarness, batch, read_records, read_values

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=120, file_delete_delay_ms=0)


def filled(world: LogHarness, batches: int = 40) -> list[tuple[int, int]]:
    """Append batches, and return the (first, last) offset of each."""
    ranges = []
    for number in range(batches):
        info = world.append(batch(*[b"%d-%d" % (number, n) for n in range(number % 4 + 1)]), epoch=number // 15)
        ranges.append((info.base_offset, info.last_offset))
    return ranges


def test_read_at_any_offset_starts_with_batch_containing_it() -> None:
    world = LogHarness()
    ranges = filled(world)
    assert world.log.segment_count > 3
    assert ranges[0][0] == 0
    for first, last in ranges:
        for offset in range(first, last + 1):
            data = world.log.read(offset, 1, world.log.log_end_offset)
            header = parse_header(data)
            assert (header.base_offset, header.last_offset, len(data)) == (first, last, header.size)


def test_read_never_exceeds_end_offset() -> None:
    world = LogHarness()
    ranges = filled(world)
    for first, last in ranges:
        assert len(world.log.read(first, 1 << 20, last)) == 0  # the batch does not end below `last`
        data = world.log.read(first, 1 << 20, last + 1)
        assert [header.last_offset for _, header in iter_batches(data)] == [last]


def test_read_returns_whole_batches_within_max_bytes_but_at_least_one() -> None:
    world = LogHarness(config=LogConfig())
    filled(world)
    size = len(world.log.read(0, 1, 1000))
    whole = world.log.read(0, 1 << 20, world.log.log_end_offset)
    for max_bytes in range(size, len(whole) + 1):
        data = world.log.read(0, max_bytes, world.log.log_end_offset)
        assert len(data) <= max_bytes
        assert bytes(data) == bytes(whole[: len(data)])
        assert sum(header.size for _, header in iter_batches(data)) == len(data)
    assert len(world.log.read(0, size - 1, 1000, min_one_batch=False)) == 0
    assert len(world.log.read(0, size - 1, 1000, min_one_batch=True)) == size


def test_batch_larger_than_read_buffer_is_returned_whole() -> None:
    world = LogHarness(config=LogConfig())
    large = bytes(3_000_000)
    world.append(batch(b"small"))
    world.append(batch(large))
    world.append(batch(b"small"))
    assert read_values(world.log) == [b"small", large, b"small"]
    assert [record.value for record in read_records(world.log, max_bytes=1)] == [b"small", large, b"small"]


def test_read_outside_log_raises_offset_out_of_range() -> None:
    world = LogHarness()
    filled(world)
    for offset in (-1, world.log.log_end_offset + 1):
        with pytest.raises(KafkaError) as caught:
            world.log.read(offset, 100, 10**6)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert len(world.log.read(world.log.log_end_offset, 100, 10**6)) == 0


def test_batches_of_one_append_get_consecutive_offsets() -> None:
    world = LogHarness()
    info = world.append(batch(b"a", b"b") + batch(b"c") + batch(b"d", b"e"))
    assert (info.base_offset, info.last_offset) == (0, 4)
    assert [(record.offset, record.value) for record in read_records(world.log)] == [
        (0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"), (4, b"e"),
    ]  # fmt: skip


def test_log_on_disk_survives_close_and_reopen(tmp_path: Path) -> None:
    world = LogHarness(DiskFileSystem(tmp_path))
    filled(world)
    expected = read_records(world.log)
    world.close()
    again = LogHarness(DiskFileSystem(tmp_path))
    assert read_records(again.log) == expected
    assert again.log.synced_offset == again.log.log_end_offset
    info = again.append(batch(b"next"), epoch=9)
    assert info.base_offset == len(expected)
    again.close()


def test_empty_partition_has_no_files() -> None:
    world = LogHarness()
    world.log.epochs.assign(7, 0)
    assert world.log.begin_sync() is None
    world.log.close()
    assert not [path for path in world.simulated_files.paths() if path.startswith("topics")]
    assert (world.log.log_start_offset, world.log.log_end_offset) == (0, 0)


def test_active_segment_rolls_by_size_time_and_index_size() -> None:
    for config in (
        LogConfig(segment_bytes=500),
        LogConfig(segment_ms=10_000),
        LogConfig(segment_index_bytes=24, index_interval_bytes=0),
    ):
        world = LogHarness(config=config)
        for number in range(20):
            world.append(batch(b"x", timestamp=NOW_MS + number * 1000))
        assert world.log.segment_count >= 2, config
        assert len(read_values(world.log)) == 20


def test_segment_rolls_by_time_after_restart() -> None:
    world = LogHarness(config=LogConfig(segment_ms=10_000, index_interval_bytes=0))
    for number in range(5):
        world.append(batch(b"x", timestamp=NOW_MS + number))
    world.close()
    again = LogHarness(world.files, world.config)
    again.append(batch(b"x", timestamp=NOW_MS + 20_000))
    assert again.log.segment_count == 2


def test_append_larger_than_segment_is_rejected() -> None:
    world = LogHarness(config=LogConfig(segment_bytes=100))
    with pytest.raises(KafkaError) as caught:
        world.append(batch(bytes(200)))
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert world.log.log_end_offset == 0


def test_append_with_older_leader_epoch_is_fenced() -> None:
    world = LogHarness()
    world.append(batch(b"a"), epoch=5)
    with pytest.raises(KafkaError) as caught:
        world.append(batch(b"b"), epoch=4)
    assert caught.value.code == ErrorCode.FENCED_LEADER_EPOCH
    assert read_values(world.log) == [b"a"]


def test_follower_appends_only_valid_consecutive_batches() -> None:
    leader, follower = LogHarness(), LogHarness()
    filled(leader)
    while follower.log.log_end_offset < leader.log.log_end_offset:
        data = leader.log.read(follower.log.log_end_offset, 300, leader.log.log_end_offset)
        assert follower.log.append_as_follower(data) is not None
    assert read_records(follower.log) == read_records(leader.log)
    assert follower.log.epochs.entries() == leader.log.epochs.entries()

    gap = leader.log.read(5, 300, leader.log.log_end_offset)
    damaged = bytearray(leader.log.read(0, 1, 10))
    damaged[-1] ^= 1
    end = follower.log.log_end_offset
    for bad in (gap, damaged):
        with pytest.raises(CorruptRecords):
            follower.log.append_as_follower(bad)
    assert follower.log.log_end_offset == end


def test_number_of_open_files_is_bounded() -> None:
    files = SimulatedFileSystem()
    world = LogHarness(files, LogConfig(segment_bytes=300, index_interval_bytes=0), open_files_max=8)
    for number in range(100):
        world.append(batch(b"%d" % number))
        world.sync()
    assert world.log.segment_count > 20
    assert len(read_values(world.log)) == 100
    assert len(world.cache) <= 8


def test_open_reads_only_the_last_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LogHarness()
    filled(world, 200)
    world.close()
    files = world.simulated_files
    opened: list[str] = []
    open_file = files.open

    def watched(path: str) -> SimulatedFile:
        opened.append(path)
        return open_file(path)

    monkeypatch.setattr(files, "open", watched)
    log = PartitionLog.open(files, LogHarness(files).cache, FOLDER, world.config, world.clock, world.log.log_end_offset)
    assert log.segment_count > 10
    assert len({path for path in opened if path.endswith(".log")}) <= 1


def world_of(config: LogConfig, *seconds: int, size: int = 1) -> LogHarness:
    """Return a log whose batches have two records each and these timestamps."""
    world = LogHarness(config=config)
    for second in seconds:
        world.append(batch(b"a" * size, b"b", timestamp=NOW_MS + 1000 * second))
    world.sync()
    return world


@pytest.mark.parametrize("restart", [False, True])
def test_timestamp_at_offset_is_that_of_its_batch(restart: bool) -> None:
    world = world_of(SMALL, *range(40))
    assert world.log.segment_count > 3
    log = world.reopen().log if restart else world.log
    assert [log.find_timestamp_at(offset) for offset in range(80)] == [
        NOW_MS + 1000 * (offset // 2) for offset in range(80)
    ]


def test_large_batches_between_index_entries_are_skipped() -> None:
    world = world_of(LogConfig(), *range(5), size=50_000)
    assert [world.log.find_timestamp_at(offset) for offset in (0, 3, 9)] == [NOW_MS, NOW_MS + 1000, NOW_MS + 4000]


def test_deleted_offset_has_timestamp_of_log_start() -> None:
    world = world_of(SMALL, *range(10))
    world.log.delete_records_before(6)
    assert world.log.find_timestamp_at(0) == NOW_MS + 3000


def test_timestamp_is_none_beyond_end_and_in_empty_log() -> None:
    assert LogHarness().log.find_timestamp_at(0) is None
    assert world_of(SMALL, 1).log.find_timestamp_at(2) is None
