from __future__ import annotations

import pytest

from chronik.errors import DataDamaged
from chronik.wal.log import WriteAheadLog, segment_path
from chronik.wal.records import HEADER_BYTES, encode_record
from tests.files.twin import TwinFiles

FOLDER = "log"
FIRST = segment_path(FOLDER, 1)


def opened(files: TwinFiles, after: int = 0) -> tuple[WriteAheadLog, list[tuple[int, bytes]]]:
    log, entries = WriteAheadLog.open(files, FOLDER, after=after)
    return log, [(entry.index, bytes(entry.payload)) for entry in entries]


def written(*groups: int) -> TwinFiles:
    """A log with one sync after each group of records, left as by a killed process."""
    files = TwinFiles()
    log, _ = opened(files)
    number = 0
    for size in groups:
        log.append([f"record {number + place}".encode() for place in range(1, size + 1)])
        log.sync()
        number += size
    return files.kill()


def expected(count: int) -> list[tuple[int, bytes]]:
    return [(number, f"record {number}".encode()) for number in range(1, count + 1)]


def test_records_come_back_in_order() -> None:
    files = written(3, 1, 2)
    log, entries = opened(files)
    assert entries == expected(6)
    assert (log.first_index, log.last_index) == (1, 6)
    assert log.append([b"record 7"]) == 7
    log.close()
    assert opened(files)[1] == expected(7)


def test_an_empty_log_opens_again() -> None:
    files = written()
    log, entries = opened(files)
    assert (entries, log.last_index) == ([], 0)


@pytest.mark.parametrize("cut", range(1, HEADER_BYTES + len(b"record 5")))
def test_a_record_cut_short_was_never_synced_and_goes(cut: int) -> None:
    files = written(4)
    whole = files.read(FIRST)
    files.overwrite(FIRST, whole + encode_record(5, len(whole), b"record 5")[:cut])
    log, entries = opened(files)
    assert entries == expected(4)
    assert files.size(FIRST) == len(whole)
    log.append([b"record 5"])
    log.close()
    assert opened(files)[1] == expected(5)


def test_of_an_unsynced_group_a_later_part_may_survive_alone() -> None:
    files = written(2)
    whole = files.read(FIRST)
    lost, kept = (encode_record(number, len(whole), f"record {number}".encode()) for number in (3, 4))
    files.overwrite(FIRST, whole + bytes(len(lost)) + kept)
    _, entries = opened(files)
    assert entries == expected(2)


def test_a_flipped_bit_anywhere_in_what_was_synced_is_damage() -> None:
    pristine = written(2, 1)
    content = pristine.read(FIRST)
    for position in range(len(content)):
        for bit in (1, 128):
            files = pristine.kill()
            damaged = bytearray(content)
            damaged[position] ^= bit
            files.overwrite(FIRST, bytes(damaged))
            with pytest.raises(DataDamaged, match=rf"{FIRST} is damaged at byte \d+"):
                opened(files)
            assert files.read(FIRST) == damaged  # nothing was truncated


def test_damage_in_the_middle_is_found_without_the_mark() -> None:
    files = written(1, 1, 1)
    damaged = bytearray(files.read(FIRST))
    damaged[HEADER_BYTES + 2] ^= 1
    files.overwrite(FIRST, bytes(damaged))
    files.overwrite(f"{FOLDER}/synced", b"")
    with pytest.raises(DataDamaged, match="damaged at byte 0"):
        opened(files)


@pytest.mark.parametrize("position", range(20))
def test_a_damaged_mark_says_nothing_and_harms_nothing(position: int) -> None:
    files = written(2)
    mark = bytearray(files.read(f"{FOLDER}/synced"))
    mark[position] ^= 255
    files.overwrite(f"{FOLDER}/synced", bytes(mark))
    assert opened(files)[1] == expected(2)


def test_a_log_that_lost_its_end_is_damaged() -> None:
    files = written(3)
    for size in (0, 10, files.size(FIRST) - 1):
        shortened = files.kill()
        shortened.overwrite(FIRST, files.read(FIRST)[:size])
        with pytest.raises(DataDamaged):
            opened(shortened)


def test_a_missing_segment_is_damage() -> None:
    files = TwinFiles()
    log, _ = opened(files)
    for number in (1, 2, 3):
        log.append([f"record {number}".encode()])
        log.roll()
    log.append([b"record 4"])
    log.close()
    assert opened(files.kill())[1] == expected(4)
    for first_index in (1, 2, 3, 4):
        broken = files.kill()
        broken.remove(segment_path(FOLDER, first_index))
        with pytest.raises(DataDamaged):
            opened(broken)


def test_damage_in_a_closed_segment_is_never_a_torn_tail() -> None:
    files = TwinFiles()
    log, _ = opened(files)
    log.append([b"record 1", b"record 2"])
    log.roll()
    log.close()
    files.overwrite(FIRST, files.read(FIRST)[:-1])
    with pytest.raises(DataDamaged, match="damaged at byte 36"):
        opened(files)


def test_segments_behind_a_snapshot_go_and_the_rest_is_read() -> None:
    files = TwinFiles()
    log, _ = opened(files)
    log.append([b"record 1", b"record 2"])
    log.roll()
    log.append([b"record 3"])
    log.sync()
    before = files.kill()
    log.drop_through(1)
    assert log.first_index == 1
    log.drop_through(2)
    assert log.first_index == 3
    log.close()
    for disk in (files, before):
        assert opened(disk, after=2)[1] == expected(3)[2:]
        assert not disk.exists(FIRST)
    with pytest.raises(DataDamaged, match="records from 1 on are missing"):
        opened(files, after=0)


def test_a_snapshot_ahead_of_the_log_is_damage() -> None:
    with pytest.raises(DataDamaged, match="ends before index 9"):
        opened(written(3), after=9)


def test_a_suffix_can_be_taken_back() -> None:
    files = TwinFiles()
    log, _ = opened(files)
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
    assert opened(files.crash(1))[1] == expected(2)
    log.append([b"record 3"])
    log.close()
    assert opened(files)[1] == expected(3)
    log, _ = opened(files)
    log.truncate_after(0)
    log.close()
    assert opened(files)[1] == []
