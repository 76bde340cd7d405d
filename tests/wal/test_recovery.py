from __future__ import annotations

import pytest

from chronik.errors import DamagedDataError
from chronik.wal.log import WriteAheadLog, build_segment_path
from chronik.wal.records import HEADER_BYTES, encode_record
from chronik.wal.snapshots import WalSnapshotWriter, find_newest_snapshot, remove_older_snapshots
from tests.files.simulated_files import SimulatedFileSystem

FOLDER = "log"
FIRST_SEGMENT = build_segment_path(FOLDER, 1)

UNRELATED_FILES = [
    "log/00000000000000000001 (copy).wal",
    "log/7.snapshot",
    "log/backup.snapshot",
    "log/notes.wal",
    "log/readme",
]


def open_log(files: SimulatedFileSystem, after: int = 0) -> tuple[WriteAheadLog, list[tuple[int, bytes]]]:
    log, entries = WriteAheadLog.open(files, FOLDER, after=after)
    return log, [(entry.index, bytes(entry.payload)) for entry in entries]


def write_log(*groups: int) -> SimulatedFileSystem:
    """Return the files of a log with one sync after each group of records, as left by a killed process."""
    files = SimulatedFileSystem()
    log, _ = open_log(files)
    number = 0
    for size in groups:
        log.append([f"record {number + offset}".encode() for offset in range(1, size + 1)])
        log.sync()
        number += size
    return files.kill()


def expected_records(count: int) -> list[tuple[int, bytes]]:
    return [(number, f"record {number}".encode()) for number in range(1, count + 1)]


def test_records_are_read_in_order() -> None:
    files = write_log(3, 1, 2)
    log, entries = open_log(files)
    assert entries == expected_records(6)
    assert (log.first_index, log.last_index) == (1, 6)
    assert log.append([b"record 7"]) == 7
    log.close()
    assert open_log(files)[1] == expected_records(7)


def test_empty_log_can_be_reopened() -> None:
    files = write_log()
    log, entries = open_log(files)
    assert (entries, log.last_index) == ([], 0)


@pytest.mark.parametrize("cut", range(1, HEADER_BYTES + len(b"record 5")))
def test_torn_tail_is_truncated(cut: int) -> None:
    files = write_log(4)
    intact = files.read(FIRST_SEGMENT)
    files.overwrite(FIRST_SEGMENT, intact + encode_record(5, len(intact), b"record 5")[:cut])
    log, entries = open_log(files)
    assert entries == expected_records(4)
    assert files.size(FIRST_SEGMENT) == len(intact)
    log.append([b"record 5"])
    log.close()
    assert open_log(files)[1] == expected_records(5)


def test_gap_in_unsynced_tail_is_truncated() -> None:
    files = write_log(2)
    intact = files.read(FIRST_SEGMENT)
    lost, kept = (encode_record(number, len(intact), f"record {number}".encode()) for number in (3, 4))
    files.overwrite(FIRST_SEGMENT, intact + bytes(len(lost)) + kept)
    _, entries = open_log(files)
    assert entries == expected_records(2)


def test_bit_flip_in_synced_records_is_damage() -> None:
    pristine = write_log(2, 1)
    content = pristine.read(FIRST_SEGMENT)
    for position in range(len(content)):
        for bit in (1, 128):
            files = pristine.kill()
            damaged = bytearray(content)
            damaged[position] ^= bit
            files.overwrite(FIRST_SEGMENT, bytes(damaged))
            with pytest.raises(DamagedDataError, match=rf"{FIRST_SEGMENT} is damaged at byte \d+"):
                open_log(files)
            assert files.read(FIRST_SEGMENT) == damaged  # the file was not truncated


def test_damage_before_last_record_is_detected_without_synced_position() -> None:
    files = write_log(1, 1, 1)
    damaged = bytearray(files.read(FIRST_SEGMENT))
    damaged[HEADER_BYTES + 2] ^= 1
    files.overwrite(FIRST_SEGMENT, bytes(damaged))
    files.overwrite(f"{FOLDER}/synced", b"")
    with pytest.raises(DamagedDataError, match="damaged at byte 0"):
        open_log(files)


@pytest.mark.parametrize("position", range(20))
def test_damaged_synced_position_is_ignored(position: int) -> None:
    files = write_log(2)
    mark = bytearray(files.read(f"{FOLDER}/synced"))
    mark[position] ^= 255
    files.overwrite(f"{FOLDER}/synced", bytes(mark))
    assert open_log(files)[1] == expected_records(2)


def test_missing_synced_tail_is_damage() -> None:
    files = write_log(3)
    for size in (0, 10, files.size(FIRST_SEGMENT) - 1):
        shortened = files.kill()
        shortened.overwrite(FIRST_SEGMENT, files.read(FIRST_SEGMENT)[:size])
        with pytest.raises(DamagedDataError):
            open_log(shortened)


def test_missing_segment_is_damage() -> None:
    files = SimulatedFileSystem()
    log, _ = open_log(files)
    for number in (1, 2, 3):
        log.append([f"record {number}".encode()])
        log.roll()
    log.append([b"record 4"])
    log.close()
    assert open_log(files.kill())[1] == expected_records(4)
    for first_index in (1, 2, 3, 4):
        broken = files.kill()
        broken.remove(build_segment_path(FOLDER, first_index))
        with pytest.raises(DamagedDataError):
            open_log(broken)


def test_damage_in_closed_segment_is_not_truncated() -> None:
    files = SimulatedFileSystem()
    log, _ = open_log(files)
    log.append([b"record 1", b"record 2"])
    log.roll()
    log.close()
    files.overwrite(FIRST_SEGMENT, files.read(FIRST_SEGMENT)[:-1])
    with pytest.raises(DamagedDataError, match="damaged at byte 36"):
        open_log(files)


def test_segments_covered_by_snapshot_are_deleted() -> None:
    files = SimulatedFileSystem()
    log, _ = open_log(files)
    log.append([b"record 1", b"record 2"])
    log.roll()
    log.append([b"record 3"])
    log.sync()
    before = files.kill()
    log.delete_segments_through(1)
    assert log.first_index == 1
    log.delete_segments_through(2)
    assert log.first_index == 3
    log.close()
    for disk in (files, before):
        assert open_log(disk, after=2)[1] == expected_records(3)[2:]
        assert not disk.exists(FIRST_SEGMENT)
    with pytest.raises(DamagedDataError, match="records from 1 on are missing"):
        open_log(files, after=0)


def test_log_ending_before_snapshot_is_damage() -> None:
    with pytest.raises(DamagedDataError, match="ends before the snapshot's index 9"):
        open_log(write_log(3), after=9)


def test_log_suffix_can_be_truncated() -> None:
    files = SimulatedFileSystem()
    log, _ = open_log(files)
    log.append([b"record 1", b"record 2", b"other 3"])
    log.roll()
    log.append([b"other 4", b"other 5"])
    log.roll()
    log.append([b"other 6"])
    log.sync()
    log.truncate_after(6)
    assert log.last_index == 6
    log.truncate_after(2)
    assert log.last_index == 2
    assert open_log(files.crash(1))[1] == expected_records(2)
    log.append([b"record 3"])
    log.close()
    assert open_log(files)[1] == expected_records(3)
    log, _ = open_log(files)
    log.truncate_after(0)
    log.close()
    assert open_log(files)[1] == []


def test_unrelated_files_in_log_directory_are_ignored() -> None:
    files = SimulatedFileSystem()
    files.make_directory(FOLDER)
    for path in UNRELATED_FILES:
        files.create(path).close()
    log, entries = WriteAheadLog.open(files, FOLDER)
    assert entries == []
    log.append([b"one"])
    log.sync()
    writer = WalSnapshotWriter(files, FOLDER, 1)
    writer.write(b"everything")
    writer.commit()
    remove_older_snapshots(files, FOLDER)
    log.close()
    assert find_newest_snapshot(files, FOLDER) == 1
    log, entries = WriteAheadLog.open(files, FOLDER, after=0)
    assert [bytes(entry.payload) for entry in entries] == [b"one"]
    log.close()
    assert [path for path in files.paths() if path in UNRELATED_FILES] == UNRELATED_FILES
