"""Bit flips, missing indexes, torn tails and missing records are detected and contained."""

from __future__ import annotations

import pytest

from chronik.log.config import LogConfig
from chronik.protocol.batch import iter_batches
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.records import Record, iter_records

from .harness import (
    NOW_MS,
    TOPIC_ID,
    LogHarness,
    batch,
    max_timestamp_offset,
    offset_for_timestamp,
    read_records,
    read_values,
)

CONFIG = LogConfig(segment_bytes=100_000, index_interval_bytes=250, file_delete_delay_ms=0)

RECORDS = 50


def written(batches: int = 12, config: LogConfig = CONFIG) -> LogHarness:
    world = LogHarness(config=config)
    for number in range(batches):
        world.append(batch(b"%d-a" % number, b"%d-b" % number, timestamp=NOW_MS + number * 10), epoch=number // 5)
    return world


def positions(world: LogHarness, suffix: str = ".log") -> list[tuple[int, int, int]]:
    """Return (start, end, base offset) of each batch in the first segment."""
    return [
        (position, position + header.size, header.base_offset)
        for position, header in iter_batches(world.simulated_files.read(world.path(suffix)))
    ]


def flipped(data: bytes, position: int, bit: int = 0) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


def read_what_is_good(world: LogHarness) -> tuple[list[Record], list[int]]:
    """Read every offset individually, and return the records and the offsets that failed."""
    served: dict[int, Record] = {}
    refused = []
    for offset in range(world.log.log_start_offset, world.log.log_end_offset):
        try:
            data = world.log.read(offset, 1, world.log.log_end_offset)
        except CorruptRecords:
            refused.append(offset)
            continue
        assert len(data) > 0
        for record in iter_records(data):
            served[record.offset] = record
    return [served[offset] for offset in sorted(served)], refused


@pytest.mark.slow
def test_bit_flip_below_synced_offset_affects_only_its_batch() -> None:
    world = written()
    world.close()
    intact, path = world.simulated_files.read(world.path(".log")), world.path(".log")
    expected = read_records(LogHarness(world.simulated_files.kill(), CONFIG).log)
    checked = 0
    for start, end, base_offset in positions(world):
        for position in range(start, end):
            files = world.simulated_files.kill()
            files.overwrite(path, flipped(intact, position, position % 8))
            damaged = LogHarness(files, CONFIG)
            served, refused = read_what_is_good(damaged)
            assert refused == [base_offset, base_offset + 1], f"byte {position - start} of batch {base_offset}"
            assert served == [record for record in expected if record.offset not in refused]
            assert damaged.log.log_end_offset == 24
            assert files.size(path) == len(intact)
            checked += 1
    assert checked == len(intact)


def test_bit_flip_in_open_log_is_detected_on_read() -> None:
    world = written()
    world.complete_syncs()
    path = world.path(".log")
    intact = world.simulated_files.read(path)
    expected = read_records(world.log)
    inode = world.simulated_files._names[path]
    for start, end, base_offset in positions(world):
        for position in range(start, end, 3):
            assert inode.content is not None
            inode.content[position] ^= 0x10
            served, refused = read_what_is_good(world)
            assert refused == [base_offset, base_offset + 1]
            assert served == [record for record in expected if record.offset not in refused]
            inode.content[position] ^= 0x10
    assert world.simulated_files.read(path) == intact


def test_bit_flip_above_synced_offset_truncates_log() -> None:
    world = written(6)
    world.sync()
    for number in range(6, 9):
        world.append(batch(b"%d-a" % number, b"%d-b" % number), epoch=1)
    path = world.path(".log")
    intact = world.simulated_files.read(path)
    for start, end, base_offset in positions(world)[6:]:
        for position in range(start, end):
            files = world.simulated_files.kill()
            files.overwrite(path, flipped(intact, position, position % 8))
            recovered = LogHarness(files, CONFIG)
            assert recovered.log.log_end_offset == base_offset, f"byte {position - start}"
            assert len(read_records(recovered.log)) == base_offset
            assert files.size(path) == start


def test_torn_tail_of_any_length_is_truncated_on_restart() -> None:
    world = written(6)
    world.sync()
    world.append(batch(b"6-a", b"6-b"), epoch=1)
    path = world.path(".log")
    intact = world.simulated_files.read(path)
    start = positions(world)[6][0]
    for size in range(start, len(intact) - 1):  # the last byte is a zero itself
        for padding in (b"", bytes(64)):
            files = world.simulated_files.kill()
            files.overwrite(path, intact[:size] + padding)
            recovered = LogHarness(files, CONFIG)
            assert recovered.log.log_end_offset == 12
            assert recovered.append(batch(b"new"), epoch=2).base_offset == 12
            assert len(read_records(recovered.log)) == 13


def test_reads_skip_damage_longer_than_a_batch() -> None:
    world = written()
    world.close()
    path = world.path(".log")
    intact = world.simulated_files.read(path)
    starts = positions(world)
    for first in range(len(starts) - 2):
        files = world.simulated_files.kill()
        begin, end = starts[first][0], starts[first + 1][1]
        files.overwrite(path, intact[:begin] + b"\xff" * (end - begin) + intact[end:])
        _, refused = read_what_is_good(LogHarness(files, CONFIG))
        assert refused == list(range(2 * first, 2 * first + 4))


def test_missing_synced_records_are_reported_and_offsets_not_reused() -> None:
    world = written()
    world.close()
    path = world.path(".log")
    start = positions(world)[8][0]
    files = world.simulated_files.kill()
    files.overwrite(path, world.simulated_files.read(path)[: start + 30])
    damaged = LogHarness(files, CONFIG)
    served, refused = read_what_is_good(damaged)
    assert len(served) == 16
    assert refused == list(range(16, 24))
    assert damaged.append(batch(b"new"), epoch=9).base_offset == 24
    damaged.close()
    again = LogHarness(files, CONFIG)
    served, refused = read_what_is_good(again)
    assert len(served) == 17
    assert refused == list(range(16, 24))


def test_missing_directory_does_not_reset_log_end_offset() -> None:
    world = written()
    world.close()
    files = world.simulated_files.kill()
    for file_path in files.paths():
        if file_path.startswith("topics"):
            files.remove(file_path)
    again = LogHarness(files, CONFIG)
    assert again.append(batch(b"new")).base_offset == 24


@pytest.mark.parametrize("suffix", [".index", "leader-epochs"])
def test_bit_flip_in_index_or_epochs_is_detected_and_repaired(suffix: str) -> None:
    config = LogConfig(segment_bytes=900, index_interval_bytes=100, file_delete_delay_ms=0)
    world = written(20, config)
    world.close()
    expected = read_records(LogHarness(world.simulated_files.kill(), config).log)
    paths = [path for path in world.simulated_files.paths() if path.endswith(suffix)]
    assert paths
    for path in paths:
        intact = world.simulated_files.read(path)
        for position in range(len(intact)):
            files = world.simulated_files.kill()
            files.overwrite(path, flipped(intact, position, position % 8))
            again = LogHarness(files, config)
            assert read_records(again.log) == expected, f"byte {position} of {path}"
            assert offset_for_timestamp(again.log, NOW_MS + 50) == offset_for_timestamp(world.log, NOW_MS + 50)
            assert again.log.epochs.entries() == world.log.epochs.entries()


@pytest.mark.parametrize("suffix", [".index", "leader-epochs", ".snapshot"])
@pytest.mark.parametrize("loss", ["removed", "emptied", "halved"])
def test_log_is_readable_without_index_epoch_and_snapshot_files(suffix: str, loss: str) -> None:
    config = LogConfig(segment_bytes=900, index_interval_bytes=100, file_delete_delay_ms=0)
    world = written(20, config)
    world.close()
    files = world.simulated_files.kill()
    for path in [path for path in files.paths() if path.endswith(suffix)]:
        if loss == "removed":
            files.remove(path)
        else:
            data = files.read(path)
            files.overwrite(path, data[: len(data) // 2 if loss == "halved" else 0])
    again = LogHarness(files, config)
    assert read_records(again.log) == read_records(world.log)
    assert again.log.epochs.entries() == world.log.epochs.entries()
    assert max_timestamp_offset(again.log) == max_timestamp_offset(world.log)


def test_bit_flip_in_snapshot_is_detected() -> None:
    world = LogHarness(config=CONFIG)
    for sequence in range(4):
        world.append(batch(b"x", producer_id=7, sequence=sequence))
    world.close()
    path = world.path(".snapshot")
    intact = world.simulated_files.read(path)
    known = world.log.producers.get(7)
    for position in range(len(intact)):
        files = world.simulated_files.kill()
        files.overwrite(path, flipped(intact, position, position % 8))
        again = LogHarness(files, CONFIG)
        found = again.log.producers.get(7)
        assert found is not None
        assert known is not None
        assert (found.epoch, found.batches) == (known.epoch, known.batches)
        assert not files.exists(path)


def test_log_start_offset_survives_bit_flip_in_checkpoint() -> None:
    world = written()
    world.log.delete_records_before(7)
    world.close()
    path = world.path("log-start")
    intact = world.simulated_files.read(path)
    for position in range(len(intact)):
        files = world.simulated_files.kill()
        files.overwrite(path, flipped(intact, position))
        assert LogHarness(files, CONFIG).log.log_start_offset == 7


def test_damaged_synced_offset_slot_only_extends_recovery() -> None:
    world = written()
    world.close()
    intact = world.simulated_files.read("synced-offsets")
    assert world.synced.get(TOPIC_ID, 0) == 24
    for position in range(len(intact)):
        files = world.simulated_files.kill()
        files.overwrite("synced-offsets", flipped(intact, position))
        again = LogHarness(files, CONFIG)
        assert again.log.log_end_offset == 24
        assert len(read_records(again.log)) == 24


def test_segment_truncated_externally_is_reported_as_damage() -> None:
    world = LogHarness()
    for number in range(8):
        world.append(batch(b"%d" % number))
    world.complete_syncs()
    file = world.files.open(world.path(".log"))
    file.truncate(file.size // 2)
    file.close()
    with pytest.raises(CorruptRecords):
        world.log.read(7, 1000, 8)


def filled(config: LogConfig | None = None) -> LogHarness:
    world = LogHarness(config=config)
    for number in range(RECORDS):
        world.append(batch(b"%d" % number), epoch=number // 20)
    world.complete_syncs()
    return world


@pytest.mark.parametrize("cut", [0, 1, 5, 60, 61, 200, 350, 699, 10_000])
def test_log_with_missing_records_is_truncated_and_refilled(cut: int) -> None:
    leader, world = filled(), filled()
    path = world.path(".log", -1)
    disk = world.simulated_files.kill()
    file = disk.open(path)
    file.truncate(max(file.size - cut, 0))
    file.close()
    lost = world.reopen(disk)
    if cut == 0:
        assert lost.log.missing_start_offset is None
        return
    missing_from = lost.log.missing_start_offset
    assert missing_from is not None
    assert missing_from < RECORDS == lost.log.log_end_offset
    assert lost.log.truncate_to(missing_from) == missing_from
    assert lost.log.missing_start_offset is None
    while lost.log.log_end_offset < RECORDS:
        offset = lost.log.log_end_offset
        assert lost.log.find_end_offset_for_epoch(lost.log.epochs.latest_epoch)[1] == offset
        assert lost.log.append_as_follower(leader.log.read(offset, 300, RECORDS)) is not None
    lost.complete_syncs()
    for world in (lost, lost.reopen()):
        assert read_values(world.log) == read_values(leader.log)
        assert world.log.epochs.entries() == leader.log.epochs.entries()


def test_missing_directory_is_an_empty_log_with_all_records_missing() -> None:
    world = filled()
    disk = world.simulated_files.kill()
    for path in [path for path in disk.paths() if "synced" not in path]:
        disk.remove(path)
    lost = world.reopen(disk)
    assert (lost.log.missing_start_offset, lost.log.log_end_offset) == (0, RECORDS)
    lost.log.truncate_fully_and_start_at(0)
    assert (lost.log.missing_start_offset, lost.log.log_end_offset) == (None, 0)
    leader = filled()
    while lost.log.log_end_offset < RECORDS:
        assert lost.log.append_as_follower(leader.log.read(lost.log.log_end_offset, 300, RECORDS)) is not None
    assert read_values(lost.log) == read_values(leader.log)


def test_undamaged_log_has_no_missing_records() -> None:
    world = filled()
    assert world.log.missing_start_offset is None
    assert world.reopen().log.missing_start_offset is None
    assert LogHarness().log.missing_start_offset is None
