"""Tests that decodable dead-letter records become rows exactly once, despite concurrent and killed retries."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError, get_ident
from typing import Any

import pytest
from deltalake import DeltaTable

from chronik.pipeline.maintenance import dead_letters
from chronik.pipeline.maintenance.dead_letter_tasks import write_decoded_rows
from chronik.pipeline.maintenance.dead_letters import RetryResult, list_dead_letters, retry_dead_letters
from chronik.pipeline.table_maintenance.merges import KEEP_HOURS_MIN, vacuum_table
from chronik.pipeline.tables.catalog import open_or_create_table, open_table
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.partitioning import TIME_PARTITIONINGS, Partitioning
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.topic_table import TableMismatchError, TableMissingError, TableSpec, TopicTable
from tests.pipeline.table_fixtures import (
    DECODE_ERROR,
    TOPIC,
    TOPIC_ID,
    build_record_columns,
    commit_rows,
    compact_table,
    create_empty_table,
    read_offsets,
    read_rows,
)

DECODABLE = {3: b'{"id":3,"new":{"deep":[1,null]}}', 5: b'{"id":"five"}', 7: b"{}"}
UNDECODABLE = {4: b"{", 8: b"\xff\x00"}
LANDED = [0, 1, 2, 6, 9]
ALL_OFFSETS = sorted([*LANDED, *DECODABLE, *UNDECODABLE])


def create_tables(root: Path, partitioning: Partitioning = Partitioning.DATE) -> tuple[TopicTable, TopicTable]:
    """Create a table of ten records, half of them dead-letter records, three of which are decodable now."""
    dead = create_empty_table(root, TableKind.DEAD_LETTERS, partitioning=partitioning)
    letters = sorted((DECODABLE | UNDECODABLE).items())
    for some in (letters[:2], letters[2:]):
        commit_rows(dead, 0, build_record_columns([offset for offset, _ in some], [value for _, value in some]))
    table = create_empty_table(root, TableKind.DECODED, partitioning=partitioning)
    commit_rows(table, 0, build_record_columns(LANDED, [b'{"id":%d}' % offset for offset in LANDED]))
    return table, dead


def listed_offsets(root: Path) -> list[int]:
    listing = list_dead_letters(str(root))
    assert listing.count == len(listing.letters)
    return [letter.offset for letter in listing.letters]


def table_offsets(table: TopicTable) -> list[int]:
    return [offset for _, offset in read_offsets(table.snapshot())]


@pytest.mark.parametrize("partitioning", TIME_PARTITIONINGS)
def test_decodable_dead_letters_become_rows_and_others_stay(tmp_path: Path, partitioning: Partitioning) -> None:
    table, _ = create_tables(tmp_path, partitioning)
    before = read_rows(table.snapshot()).sort_by("_offset")
    assert listed_offsets(tmp_path) == [3, 4, 5, 7, 8]
    assert retry_dead_letters(str(tmp_path)) == [RetryResult(TOPIC, decoded=3, failing=2)]
    assert listed_offsets(tmp_path) == [4, 8]
    assert table_offsets(table) == sorted([*LANDED, *DECODABLE])
    found = {row["_offset"]: row for row in read_rows(table.snapshot()).to_pylist()}
    assert found[3]["id"] == 3
    assert found[3]["new"] == {"deep": [1, None]}
    assert (found[5]["id"], found[5]["_rescued"]) == (None, '{"id":"five"}')
    assert (found[7]["id"], found[7]["_rescued"]) == (None, None)
    assert found[7]["_value_crc32c"] is not None
    landed, retried = found[6], found[7]
    assert retried["_timestamp"] > landed["_timestamp"]
    for name in ("_partition", "_key", "_date", "_headers", "_timestamp_ms"):
        assert retried[name] == landed[name]
    assert before["_offset"].to_pylist() == LANDED
    assert table.next_offsets() == {0: 10}, "a retry does not change the next offsets"


def test_second_retry_has_nothing_to_do(tmp_path: Path) -> None:
    table, dead = create_tables(tmp_path)
    retry_dead_letters(str(tmp_path))
    versions = table.snapshot().version, dead.snapshot().version
    assert retry_dead_letters(str(tmp_path)) == [RetryResult(TOPIC, decoded=0, failing=2)]
    assert (table.snapshot().version, dead.snapshot().version) == versions


def test_dead_letters_of_uncommitted_round_are_not_retried(tmp_path: Path) -> None:
    table, dead = create_tables(tmp_path)
    commit_rows(dead, 0, build_record_columns([10, 11], [b"{}", b"{}"]))
    assert retry_dead_letters(str(tmp_path)) == [RetryResult(TOPIC, decoded=3, failing=2, waiting=2)]
    assert listed_offsets(tmp_path) == [4, 8, 10, 11]
    # After its driver was killed, the batch lands again with rules that can decode one of them:
    commit_rows(table, 0, build_record_columns([10], [b"{}"]), end=12)
    assert retry_dead_letters(str(tmp_path)) == [RetryResult(TOPIC, decoded=1, failing=2)]
    assert listed_offsets(tmp_path) == [4, 8]
    assert table_offsets(table) == sorted([*LANDED, *DECODABLE, 10, 11])


def test_dead_letters_wait_until_table_exists(tmp_path: Path) -> None:
    commit_rows(create_empty_table(tmp_path, TableKind.DEAD_LETTERS), 0, build_record_columns([0], [b"{}"]))
    assert retry_dead_letters(str(tmp_path)) == [RetryResult(TOPIC, decoded=0, failing=0, waiting=1)]
    assert listed_offsets(tmp_path) == [0]


def test_many_files_are_retried_in_rounds(tmp_path: Path) -> None:
    dead, table = create_empty_table(tmp_path, TableKind.DEAD_LETTERS), create_empty_table(tmp_path, TableKind.DECODED)
    for offset in range(0, 20, 2):
        commit_rows(dead, 0, build_record_columns([offset], [b'{"n":%d}' % offset]))
    commit_rows(table, 0, build_record_columns([1, 19], [b"{}", b"{}"]))
    told: list[tuple[int, int]] = []
    assert retry_dead_letters(str(tmp_path), files_per_round=3, progress=lambda *at: told.append(at)) == [
        RetryResult(TOPIC, 10, 0)
    ]
    assert told == [(3, 10), (6, 10), (9, 10), (10, 10)]
    assert table_offsets(table) == sorted([*range(0, 20, 2), 1, 19])
    assert listed_offsets(tmp_path) == []


def test_list_describes_dead_letter(tmp_path: Path) -> None:
    create_tables(tmp_path)
    listing = list_dead_letters(str(tmp_path), [TOPIC], limit=2)
    assert listing.count == list_dead_letters(str(tmp_path), limit=0).count == 5
    first, second = listing.letters
    assert (first.topic, first.partition, first.offset, first.error) == (TOPIC, 0, 3, DECODE_ERROR)
    assert (first.value, first.value_bytes) == (DECODABLE[3], len(DECODABLE[3]))
    assert second.offset == 4


def test_list_shows_beginning_of_long_value(tmp_path: Path) -> None:
    commit_rows(create_empty_table(tmp_path, TableKind.DEAD_LETTERS), 0, build_record_columns([0], [b"x" * 5000]))
    (letter,) = list_dead_letters(str(tmp_path)).letters
    assert (letter.value, letter.value_bytes) == (b"x" * dead_letters.VALUE_BYTES_SHOWN, 5000)


def test_list_and_retry_reject_a_root_without_tables(tmp_path: Path) -> None:
    for command in (list_dead_letters, retry_dead_letters):
        with pytest.raises(TableMissingError, match=f"no tables under {tmp_path}"):
            command(str(tmp_path))


def test_list_and_retry_reject_topic_without_table(tmp_path: Path) -> None:
    create_empty_table(tmp_path, TableKind.DECODED)
    assert list_dead_letters(str(tmp_path), [TOPIC]).count == 0
    assert retry_dead_letters(str(tmp_path), [TOPIC]) == []
    with pytest.raises(TableMissingError):
        list_dead_letters(str(tmp_path), ["orderz"])


def test_dead_letters_of_deleted_topic_are_not_added_to_recreated_topic(tmp_path: Path) -> None:
    commit_rows(create_empty_table(tmp_path, TableKind.DEAD_LETTERS), 0, build_record_columns([0], [b"{}"]))
    successor = TableSpec(TOPIC, TOPIC_ID[:-1] + "g", TableKind.DECODED)
    open_or_create_table(table_uri(str(tmp_path), TOPIC), successor)
    with pytest.raises(TableMismatchError, match="different topics"):
        retry_dead_letters(str(tmp_path))


# Concurrent retries


@pytest.mark.parametrize("meeting_point", ["scan_dead_letters", "write_decoded_rows", "rewrite_dead_letter_file"])
def test_concurrent_retries_append_each_dead_letter_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meeting_point: str
) -> None:
    table, _ = create_tables(tmp_path)
    both = Barrier(2)
    step: Callable[..., Any] = getattr(dead_letters, meeting_point)
    met: set[int] = set()

    def wait_and_run(*arguments: Any) -> Any:
        if get_ident() not in met:
            met.add(get_ident())
            with suppress(BrokenBarrierError):  # the other retry has nothing left to do
                both.wait(5)
        return step(*arguments)

    monkeypatch.setattr(dead_letters, meeting_point, wait_and_run)
    with ThreadPoolExecutor(2) as pool:
        done = [future.result() for future in [pool.submit(retry_dead_letters, str(tmp_path)) for _ in range(2)]]
    assert sum(each.decoded for (each,) in done) == 3
    assert table_offsets(table) == sorted([*LANDED, *DECODABLE])
    assert listed_offsets(tmp_path) == [4, 8]
    assert len(list(Path(table.uri).glob("_date=*/*.parquet"))) == len(table.snapshot().file_uris), (
        "there must be no orphans"
    )


@pytest.mark.slow
def test_retry_succeeds_during_landing_and_compaction(tmp_path: Path) -> None:
    table, dead = create_tables(tmp_path)
    rounds = 8

    def land_rounds() -> None:
        mine, letters = (
            create_empty_table(tmp_path, TableKind.DECODED),
            create_empty_table(tmp_path, TableKind.DEAD_LETTERS),
        )
        for start in range(10, 10 + 4 * rounds, 4):
            commit_rows(letters, 0, build_record_columns([start, start + 1], [b'{"late":true}', b"{"]), end=start + 4)
            commit_rows(mine, 0, build_record_columns([start + 2, start + 3], [b"{}", b"{}"]))

    def compact_repeatedly() -> None:
        while not landing.done():
            compact_table(dead.uri)
            compact_table(table.uri)

    with ThreadPoolExecutor(2) as others:
        landing = others.submit(land_rounds)
        compacting = others.submit(compact_repeatedly)
        decoded = 0
        while not landing.done():
            decoded += retry_dead_letters(str(tmp_path))[0].decoded
        landing.result()
        compacting.result()
    decoded += retry_dead_letters(str(tmp_path))[0].decoded
    assert decoded == 3 + rounds
    failing = [4, 8, *range(11, 10 + 4 * rounds, 4)]
    assert listed_offsets(tmp_path) == failing
    assert table_offsets(table) == sorted({*range(10 + 4 * rounds)} - {*failing})


# Killed retries

KILLED_RETRY = """
import os, sys
from chronik.pipeline.maintenance import dead_letters
from chronik.pipeline.tables.delta.table import DeltaTopicTable

place, root = sys.argv[1:]
def die(*_, **__):
    os.kill(os.getpid(), 9)
if place == "before writing rows":
    dead_letters.write_decoded_rows = die
elif place == "before committing rows":
    DeltaTopicTable.append_in_sequence = die
elif place == "before removing dead letters":
    dead_letters.TablePair._remove_landed_dead_letters = die
elif place == "before committing the removal":
    DeltaTopicTable.replace_files = die
elif place == "before recording the retry":
    dead_letters.TablePair._record_completed_retry = die
dead_letters.retry_dead_letters(root)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kill_point", "appended"),
    [
        ("before writing rows", False),
        ("before committing rows", False),
        ("before removing dead letters", True),
        ("before committing the removal", True),
        ("before recording the retry", True),
    ],
)
def test_killed_retry_loses_and_duplicates_no_record(tmp_path: Path, kill_point: str, appended: bool) -> None:
    table, dead = create_tables(tmp_path)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_RETRY, kill_point, str(tmp_path)], env=os.environ, check=False
    )
    assert killed.returncode == -9
    assert table_offsets(table) == sorted([*LANDED, *(DECODABLE if appended else ())])
    assert listed_offsets(tmp_path) == ([4, 8] if appended else [3, 4, 5, 7, 8]), "retried records must not be listed"
    assert retry_dead_letters(str(tmp_path)) == [RetryResult(TOPIC, decoded=0 if appended else 3, failing=2)]
    assert table_offsets(table) == sorted([*LANDED, *DECODABLE])
    assert listed_offsets(tmp_path) == [4, 8]
    assert [offset for _, offset in read_offsets(dead.snapshot())] == [4, 8]
    vacuum_table(table, keep_hours=0, pipeline_stopped=True)
    vacuum_table(open_table(build_dead_letters_uri(str(tmp_path), TOPIC)), keep_hours=0, pipeline_stopped=True)
    assert sorted(table_offsets(table) + listed_offsets(tmp_path)) == ALL_OFFSETS


def test_dead_letter_already_in_table_is_not_appended(tmp_path: Path) -> None:
    """Its round was killed after the dead-letter commit, and newer rules decoded it in the next round."""
    dead, table = create_empty_table(tmp_path, TableKind.DEAD_LETTERS), create_empty_table(tmp_path, TableKind.DECODED)
    commit_rows(dead, 0, build_record_columns([1], [b'{"n":1}']))
    commit_rows(table, 0, build_record_columns([0, 1, 2], [b'{"n":0}', b'{"n":1}', b'{"n":2}']))
    assert retry_dead_letters(str(tmp_path)) == [RetryResult(TOPIC, decoded=0, failing=0)]
    assert table_offsets(table) == [0, 1, 2]
    assert listed_offsets(tmp_path) == []


def test_retry_with_lost_responses_is_found_in_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = create_tables(tmp_path)
    commit = DeltaTable.create_write_transaction
    lost = []

    def commit_and_lose_response(self: DeltaTable, *arguments: Any, **named: Any) -> None:
        commit(self, *arguments, **named)
        lost.append(1)
        raise OSError("connection reset")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_and_lose_response)
    assert retry_dead_letters(str(tmp_path)) == [RetryResult(TOPIC, decoded=3, failing=2)]
    assert len(lost) == 3, "commits of rows, of the removal and of the retry number"
    assert table_offsets(table) == sorted([*LANDED, *DECODABLE])
    assert listed_offsets(tmp_path) == [4, 8]


def test_rows_vacuumed_before_commit_are_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = create_tables(tmp_path)
    written: list[Path] = []

    def write_and_vacuum(*arguments: Any) -> Any:
        files = write_decoded_rows(*arguments)
        written.extend(Path(table.uri) / file.path for file in files)
        if len(written) == 1:
            os.utime(written[0], (0, 0))
            vacuum_table(table, keep_hours=KEEP_HOURS_MIN)
        return files

    monkeypatch.setattr(dead_letters, "write_decoded_rows", write_and_vacuum)
    assert retry_dead_letters(str(tmp_path)) == [RetryResult(TOPIC, decoded=3, failing=2)]
    assert [path.exists() for path in written] == [False, False, True, True], "remaining files are no orphans"
    assert table_offsets(table) == sorted([*LANDED, *DECODABLE])
    assert listed_offsets(tmp_path) == [4, 8]


def test_equal_offsets_of_different_partitions_are_distinct(tmp_path: Path) -> None:
    dead, table = create_empty_table(tmp_path, TableKind.DEAD_LETTERS), create_empty_table(tmp_path, TableKind.DECODED)
    values: Sequence[bytes] = [b'{"n":1}']
    for partition in (0, 2):
        commit_rows(dead, partition, build_record_columns([5], values))
    for partition in (0, 1, 2):
        commit_rows(table, partition, build_record_columns([6 if partition != 1 else 5], [b"{}"]))
    assert retry_dead_letters(str(tmp_path)) == [RetryResult(TOPIC, decoded=2, failing=0)]
    assert read_offsets(table.snapshot()) == [(0, 5), (0, 6), (1, 5), (2, 5), (2, 6)]
