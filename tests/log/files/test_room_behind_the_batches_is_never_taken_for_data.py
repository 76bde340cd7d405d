"""The active segment's file may be longer than its batches: nobody but the disk may notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronik.clock import ManualClock
from chronik.files import RealFiles
from chronik.log.config import LogConfig
from chronik.log.files.room import ROOM_BYTES_MAX, ROOM_BYTES_MIN, SMALL_SYNC_BYTES, Room
from chronik.protocol.errors import CorruptRecords
from tests.files.twin import TwinFiles
from tests.log.script import new_promises, run_script
from tests.log.world import NOW_MS, TOPIC_ID, World, batch, values_of

LARGE = LogConfig(segment_bytes=1 << 20, index_interval_bytes=200, file_delete_delay_ms=0)
UNLIMITED = 1 << 30


def commit(world: World, value: bytes) -> None:
    """As the broker does it: one append, one sync."""
    world.append(batch(value))
    ticket = world.log.begin_sync()
    assert ticket is not None
    ticket.run()
    world.log.complete_sync(ticket)
    world.synced.record(TOPIC_ID, 0, world.log.synced_offset)


def world_with_room(files: TwinFiles | None = None, open_files_max: int = 64) -> World:
    world = World(files, LARGE, open_files_max=open_files_max)
    for value in (b"a", b"b", b"c"):
        commit(world, value)
    return world


def test_small_syncs_reserve_room_and_the_log_is_no_larger_for_it() -> None:
    world = world_with_room()
    raw = world.twin.read(world.path(".log"))
    batch_bytes = len(batch(b"a"))
    assert world.log.size == 3 * batch_bytes
    assert len(raw) == 2 * batch_bytes + ROOM_BYTES_MIN
    assert not any(raw[world.log.size :])
    assert values_of(world.log) == [b"a", b"b", b"c"]


def test_syncs_into_room_change_no_length() -> None:
    world = world_with_room()
    length = len(world.twin.read(world.path(".log")))
    commit(world, b"d")
    assert len(world.twin.read(world.path(".log"))) == length


def test_after_a_kill_the_room_is_cut_off_and_nothing_else() -> None:
    world = world_with_room().reopened()
    assert len(world.twin.read(world.path(".log"))) == world.log.size
    assert values_of(world.log) == [b"a", b"b", b"c"]
    commit(world, b"d")
    assert values_of(world.reopened().log) == [b"a", b"b", b"c", b"d"]


def test_after_a_power_cut_that_loses_the_synced_offset_the_room_is_still_no_data() -> None:
    world = world_with_room()
    for seed in range(20):
        after = world.reopened(world.twin.crash(seed))
        assert after.log.log_end_offset == 3
        assert values_of(after.log) == [b"a", b"b", b"c"]


def test_zeros_where_synced_records_were_are_damage_and_not_the_end() -> None:
    world = world_with_room()
    raw = world.twin.read(world.path(".log"))
    kept = 2 * len(batch(b"a"))
    world.twin.overwrite(world.path(".log"), raw[:kept] + bytes(len(raw) - kept))
    after = world.reopened()
    assert after.log.log_end_offset == 3, "the offset must not be given out again"
    assert len(after.log.read(0, 1 << 20, 3)) == kept
    with pytest.raises(CorruptRecords):
        after.log.read(2, 1 << 20, 3)


def test_a_closed_log_has_no_room() -> None:
    world = world_with_room()
    world.close()
    assert len(world.twin.read(world.path(".log"))) == 3 * len(batch(b"a"))
    assert values_of(world.reopened(world.twin).log) == [b"a", b"b", b"c"]


def test_a_closed_segment_has_no_room_even_after_a_power_cut() -> None:
    world = world_with_room()
    first = world.path(".log")
    world.log.roll()
    commit(world, b"d")
    for seed in range(20):
        after = world.reopened(world.twin.crash(seed))
        assert len(after.twin.read(first)) == 3 * len(batch(b"a"))
        assert values_of(after.log) == [b"a", b"b", b"c", b"d"]


def assert_no_power_cut_loses_anything(world: World, values: list[bytes]) -> None:
    for seed in range(100):
        assert values_of(world.reopened(world.twin.crash(seed)).log) == values, seed


def test_a_kill_after_a_segment_was_closed_brings_its_room_back_in_no_power_cut() -> None:
    world = world_with_room()
    world.log.roll()
    world.append(batch(b"d"))
    after = world.reopened()
    commit(after, b"e")
    assert_no_power_cut_loses_anything(after, [b"a", b"b", b"c", b"d", b"e"])


def test_a_kill_while_the_log_was_closed_brings_its_room_back_in_no_power_cut() -> None:
    class Killed(Exception):
        pass

    def kill(action: str, path: str) -> None:
        if action == "sync":
            raise Killed

    world = world_with_room()
    world.twin.before_event = kill
    with pytest.raises(Killed):
        world.log.close()
    after = world.reopened()
    after.log.roll()
    commit(after, b"d")
    assert_no_power_cut_loses_anything(after, [b"a", b"b", b"c", b"d"])


def test_a_truncated_log_has_no_room_and_grows_on() -> None:
    world = world_with_room()
    world.log.truncate_to(1)
    world.synced.lower(TOPIC_ID, 0, 1)
    assert len(world.twin.read(world.path(".log"))) == len(batch(b"a"))
    for value in (b"x", b"y"):
        commit(world, value)
    assert values_of(world.reopened().log) == [b"a", b"x", b"y"]


def test_a_file_that_was_closed_meanwhile_goes_on_where_its_batches_end() -> None:
    world = world_with_room(open_files_max=1)
    world.cache.create("another").close()
    world.cache.forget(world.path(".log"))
    commit(world, b"d")
    assert values_of(world.log) == [b"a", b"b", b"c", b"d"]


def test_a_disk_that_cannot_reserve_is_appended_to() -> None:
    files = TwinFiles()
    files.reserves = False
    world = world_with_room(files)
    assert len(files.read(world.path(".log"))) == world.log.size
    assert values_of(world.reopened().log) == [b"a", b"b", b"c"]


def test_on_a_real_disk_a_killed_log_loses_its_room_and_a_closed_one_has_none(tmp_path: Path) -> None:
    first = World(RealFiles(tmp_path), LARGE, ManualClock(NOW_MS))
    for value in (b"a", b"b", b"c"):
        commit(first, value)
    (path,) = tmp_path.glob("topics/*/0/*.log")
    assert path.stat().st_size >= first.log.size
    second = first.reopened(RealFiles(tmp_path))
    assert path.stat().st_size == second.log.size
    commit(second, b"d")
    assert values_of(second.log) == [b"a", b"b", b"c", b"d"]
    second.close()
    assert path.stat().st_size == 4 * len(batch(b"a"))
    first.cache.close()
    first.synced.close()


def test_the_script_of_the_power_cuts_has_room_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    extended = Room.extended
    reserved: list[int] = []

    def counted(room: Room, size: int, size_max: int) -> int | None:
        end = extended(room, size, size_max)
        if end is not None:
            reserved.append(end)
        return end

    monkeypatch.setattr(Room, "extended", counted)
    run_script(TwinFiles(), new_promises(), seed=7, operations=1000)
    assert len(reserved) > 50


# How much room


def test_the_first_sync_of_a_segment_reserves_nothing() -> None:
    assert Room().extended(100, UNLIMITED) is None


def room_after(size: int) -> Room:
    room = Room()
    room.extended(size, UNLIMITED)
    return room


def test_room_grows_with_the_segment_within_bounds() -> None:
    assert room_after(100).extended(200, UNLIMITED) == 200 + ROOM_BYTES_MIN
    assert room_after(100_000).extended(100_001, UNLIMITED) == 200_002
    assert room_after(1 << 29).extended((1 << 29) + 1, UNLIMITED) == (1 << 29) + 1 + ROOM_BYTES_MAX


def test_room_never_goes_beyond_what_a_segment_may_hold() -> None:
    assert room_after(100).extended(200, 1000) == 1000
    assert room_after(100).extended(1000, 1000) is None


def test_large_syncs_reserve_nothing_until_small_ones_follow() -> None:
    room = room_after(100)
    assert room.extended(101 + SMALL_SYNC_BYTES, UNLIMITED) is None
    assert room.extended(102 + SMALL_SYNC_BYTES, UNLIMITED) is not None


def test_room_is_not_asked_for_again_before_it_is_used_up() -> None:
    room = room_after(100)
    end = room.extended(200, UNLIMITED)
    assert end is not None
    assert room.extended(end, UNLIMITED) is None
    assert room.extended(end + 1, UNLIMITED) is not None
