"""Tests that compaction and vacuum change files, never rows, offsets or uncommitted files.

All tables under a root can be compacted, also during landings and vacuums.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, TableFeatures

from chronik.cli.main import main
from chronik.pipeline.maintenance import compaction as module
from chronik.pipeline.maintenance.compaction import CompactionFailedError, VacuumOptions, compact_tables
from chronik.pipeline.spark.jvm import SparkUnavailableError
from chronik.pipeline.spark.tasks import Item, Result, TaskFailedError, run_locally
from chronik.pipeline.table_maintenance.merges import (
    KEEP_HOURS_MIN,
    CompactionStats,
    MergeTask,
    VacuumRejectedError,
    commit_merged_file,
    group_small_files,
    merge_table_files,
    plan_merges,
    vacuum_table,
)
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput, WrittenFilesLostError
from chronik.pipeline.tables.layout import TableKind, initial_schema
from chronik.pipeline.tables.parquet import PartitionedParquetWriter
from chronik.pipeline.tables.partitioning import TIME_PARTITIONINGS
from chronik.pipeline.tables.storage import TableStorage
from chronik.pipeline.tables.table_files import COMMIT_HOURS_MAX, ORPHAN_HOURS_MIN, LiveFile
from chronik.pipeline.tables.topic_table import TableMismatchError, TableMissingError, TableSpec, TopicTable
from chronik.pipeline.tables.values.row_decoder import infer_statistics
from tests.pipeline.table_fixtures import (
    SPEC,
    TOPIC,
    build_batch,
    build_record_columns,
    commit_rows,
    compact_table,
    create_empty_table,
    expected_offsets,
    open_test_table,
    read_offsets,
    read_rows,
    write_task_output,
)

HOUR_SECONDS = 3600


def commit_ranges(directory: Path, committer: TopicTable, range_count: int = 4) -> None:
    for start in range(0, 10 * range_count, 10):
        committer.commit([write_task_output(directory, PartitionRange(0, start, start + 10))])


def files(directory: Path) -> set[Path]:
    return set(directory.glob("_date=*/*.parquet"))


def set_file_age(path: Path, hours: float) -> None:
    then = time.time() - hours * HOUR_SECONDS
    os.utime(path, (then, then))


def test_small_files_are_merged_without_other_changes(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer)
    before = committer.snapshot()
    done = compact_table(str(tmp_path))
    after = committer.snapshot()
    assert (done.files_removed, done.files_added, after.version) == (4, 1, before.version + 1)
    assert 0 < done.bytes_after < done.bytes_before
    assert (len(before.file_uris), len(after.file_uris)) == (4, 1)
    assert after.next_offsets == before.next_offsets == {0: 40}
    assert read_rows(after).sort_by("_offset").equals(read_rows(before).sort_by("_offset"))


def test_second_compaction_changes_nothing(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer)
    compact_table(str(tmp_path))
    before = committer.snapshot()
    assert compact_table(str(tmp_path)).files_removed == 0
    assert committer.snapshot() == before


def test_files_with_different_columns_are_merged(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path, TableSpec(SPEC.topic, SPEC.topic_id, TableKind.DECODED))
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 0, 5), schema=committer.snapshot().schema)])
    evolved = committer.add_columns(infer_statistics([b'{"id": 1}']))
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 5, 9), schema=evolved.schema)])
    compact_table(str(tmp_path))
    snapshot = committer.snapshot()
    assert len(snapshot.file_uris) == 1
    assert read_offsets(snapshot) == expected_offsets(PartitionRange(0, 0, 9))


def test_since_limits_compaction_to_later_days(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer)
    assert compact_table(str(tmp_path), since=date(2024, 5, 2)).files_removed == 0
    assert compact_table(str(tmp_path), since=date(2024, 5, 1)).files_removed == 4


def test_landing_continues_after_compaction(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer)
    unit = write_task_output(tmp_path, PartitionRange(0, 40, 50))
    compact_table(str(tmp_path))
    assert committer.commit([unit]).rows == 10
    assert committer.commit([write_task_output(tmp_path, PartitionRange(0, 30, 40))]).rows == 0
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 50))


@pytest.mark.slow
def test_concurrent_landing_and_compaction_succeed(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer)
    range_count = 30

    def land() -> None:
        mine = open_test_table(tmp_path)
        for start in range(0, 10 * range_count, 10):
            mine.commit([write_task_output(tmp_path, PartitionRange(1, start, start + 10))])

    with ThreadPoolExecutor(1) as other:
        landing = other.submit(land)
        removed = 0
        while not landing.done():
            removed += compact_table(str(tmp_path)).files_removed
        landing.result()
    removed += compact_table(str(tmp_path)).files_removed
    snapshot = committer.snapshot()
    assert removed >= range_count
    assert snapshot.next_offsets == {0: 40, 1: 10 * range_count}
    assert read_offsets(snapshot) == expected_offsets(PartitionRange(0, 0, 40), PartitionRange(1, 0, 10 * range_count))


def test_concurrent_compactions_keep_every_row_once(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer, range_count=8)
    with ThreadPoolExecutor(2) as both:
        done = list(both.map(compact_table, [str(tmp_path)] * 2))
    assert sum(each.files_removed for each in done) == 8
    assert len(committer.snapshot().file_uris) == len(files(tmp_path)) - 8 == 1
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 80))


def test_compaction_that_lost_race_deletes_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer)
    commit = DeltaTable.create_write_transaction
    attempts = []

    def commit_after_other(self: DeltaTable, *arguments: Any, **named: Any) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            assert compact_table(str(tmp_path)).files_removed == 4
        commit(self, *arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_after_other)
    assert compact_table(str(tmp_path)).files_removed == 0
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 40))
    assert len(files(tmp_path)) == 5


def test_compaction_with_lost_response_is_found_in_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer)
    commit = DeltaTable.create_write_transaction

    def commit_and_lose_response(self: DeltaTable, *arguments: Any, **named: Any) -> None:
        commit(self, *arguments, **named)
        raise OSError("connection reset")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_and_lose_response)
    assert compact_table(str(tmp_path)).files_removed == 4
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 40))


@pytest.mark.parametrize("others", [1, 2])
def test_replaced_files_are_kept_after_lost_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """The merged files were committed and then replaced: files of any version must not be deleted."""
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer, range_count=2)
    before = committer.files()
    written = [file for old in before.files for file in merge_table_files(MergeTask(before.with_files(old), 100))]
    commit = DeltaTable.create_write_transaction
    commits = []

    def commit_and_lose_response(self: DeltaTable, *arguments: Any, **named: Any) -> None:
        commit(self, *arguments, **named)
        commits.append(1)
        if len(commits) == 1:
            now = open_table(str(tmp_path)).files()
            for old in now.files[:others]:
                joined = merge_table_files(MergeTask(now.with_files(old), 100))
                assert open_table(str(tmp_path)).replace_files([old], joined, data_change=False)
            raise OSError("connection reset")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_and_lose_response)
    assert committer.replace_files(before.files, written, data_change=True) == (others == 1)
    assert len(commits) == 1 + others
    assert all((tmp_path / file.path).exists() for file in written)
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 20))


def test_files_are_grouped_by_partition_up_to_target_size() -> None:
    def file(name: str, size: int, *values: str) -> LiveFile:
        return LiveFile(name, size, values)

    one, two = [file(f"a{n}", 40, "mon") for n in range(5)], [file("b1", 40, "tue"), file("b2", 80, "tue")]
    groups = [[each.path for each in group] for group in group_small_files([*one, *two], 100)]
    assert groups == [["a0", "a1", "a2"], ["a3", "a4"]], "b1 would be the only file, and b2 is almost full"


def test_every_partitioning_can_be_compacted(tmp_path: Path) -> None:
    for partitioning in TIME_PARTITIONINGS:
        directory = tmp_path / partitioning.value
        committer = open_test_table(directory, TableSpec(SPEC.topic, SPEC.topic_id, partitioning=partitioning))
        for start in (0, 5):
            committer.commit(
                [write_task_output(directory, PartitionRange(0, start, start + 5), partitioning=partitioning)]
            )
        before = read_rows(committer.snapshot()).sort_by("_offset")
        assert compact_table(str(directory)).files_removed == 2
        assert read_rows(committer.snapshot()).sort_by("_offset").equals(before)


def test_records_without_date_are_compacted(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    for start in (0, 2):
        span = PartitionRange(0, start, start + 2)
        with PartitionedParquetWriter(TableStorage(str(tmp_path)), initial_schema(TableKind.RAW), ("_date",)) as writer:
            writer.write(build_batch(span, timestamps_ms=[-1, -2]))
        committer.commit([TaskOutput((span,), writer.files)])
    before = read_rows(committer.snapshot()).sort_by("_offset")
    assert compact_table(str(tmp_path)).files_removed == 2
    assert read_rows(committer.snapshot()).sort_by("_offset").equals(before)
    assert before["_date"].null_count == 4


def test_table_with_unsupported_features_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer)
    DeltaTable(str(tmp_path)).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    with pytest.raises(TableMismatchError, match=r"(?i)deletion"):
        compact_table(str(tmp_path))


def test_vacuum_deletes_old_orphans_and_keeps_uncommitted_files(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer)
    committed = files(tmp_path)
    orphan = tmp_path / write_task_output(tmp_path, PartitionRange(0, 40, 50)).files[0].path
    set_file_age(orphan, ORPHAN_HOURS_MIN + 1)
    in_flight = write_task_output(tmp_path, PartitionRange(0, 40, 50))
    set_file_age(tmp_path / in_flight.files[0].path, COMMIT_HOURS_MAX - 1)
    listed = vacuum_table(open_table(str(tmp_path)), keep_hours=KEEP_HOURS_MIN, dry_run=True)
    assert [Path(path).name for path in listed] == [orphan.name]
    assert orphan.exists()
    vacuum_table(open_table(str(tmp_path)), keep_hours=KEEP_HOURS_MIN)
    assert not orphan.exists()
    assert files(tmp_path) == committed | {tmp_path / in_flight.files[0].path}
    assert committer.commit([in_flight]).rows == 10
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 50))


def test_file_older_than_commit_limit_is_not_committed(tmp_path: Path) -> None:
    """Otherwise a vacuum that has already listed the file could delete it after the commit."""
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer, range_count=2)
    before = committer.snapshot()
    late = write_task_output(tmp_path, PartitionRange(0, 20, 30))
    set_file_age(tmp_path / late.files[0].path, COMMIT_HOURS_MAX + 1)
    with pytest.raises(WrittenFilesLostError, match=r"1 of 1 file .*older than 12 h.*part-"):
        committer.commit([late])
    (join,) = plan_merges(committer)
    joined = merge_table_files(join)
    set_file_age(tmp_path / joined[0].path, COMMIT_HOURS_MAX + 1)
    assert commit_merged_file(committer, join, joined) == CompactionStats()
    assert committer.snapshot() == before
    set_file_age(tmp_path / late.files[0].path, COMMIT_HOURS_MAX - 1)
    assert committer.commit([late]).rows == 10
    assert ORPHAN_HOURS_MIN >= 2 * COMMIT_HOURS_MAX, "margin for clock differences and delayed drivers"


@pytest.mark.slow
def test_vacuum_deletes_replaced_files_before_orphans(tmp_path: Path) -> None:
    """Replaced files were committed before, so no commit can add them. Also after a log checkpoint."""
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer)
    for start in range(0, 50, 2):
        committer.commit([write_task_output(tmp_path, PartitionRange(1, start, start + 2))])
    orphan = tmp_path / write_task_output(tmp_path, PartitionRange(0, 40, 50)).files[0].path
    replaced = files(tmp_path) - {orphan}
    compact_table(str(tmp_path))
    for path in (*replaced, orphan):
        set_file_age(path, KEEP_HOURS_MIN + 1)
    assert vacuum_table(open_table(str(tmp_path)), keep_hours=KEEP_HOURS_MIN) == [], (
        "versions of the last hour contain them"
    )
    age_removals(tmp_path, KEEP_HOURS_MIN + 1)
    listed = vacuum_table(open_table(str(tmp_path)), keep_hours=KEEP_HOURS_MIN, dry_run=True)
    assert {tmp_path / path for path in listed} == replaced
    assert len(vacuum_table(open_table(str(tmp_path)), keep_hours=KEEP_HOURS_MIN)) == len(replaced)
    assert orphan.exists()
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 40), PartitionRange(1, 0, 50))


def age_removals(directory: Path, hours: int) -> None:
    """Make the removals in the table's log appear older."""
    for entry in (directory / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] -= hours * HOUR_SECONDS * 1000
        entry.write_text("\n".join(map(json.dumps, actions)))


def test_commit_of_vacuumed_files_is_rejected(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer, range_count=2)
    taken, kept = (
        write_task_output(tmp_path, PartitionRange(0, 20, 30)),
        write_task_output(tmp_path, PartitionRange(1, 0, 10)),
    )
    set_file_age(tmp_path / taken.files[0].path, ORPHAN_HOURS_MIN + 1)
    vacuum_table(open_table(str(tmp_path)), keep_hours=KEEP_HOURS_MIN)
    before = committer.snapshot()
    with pytest.raises(WrittenFilesLostError, match=r"1 of 2 files.*part-"):
        committer.commit([taken, kept])
    with pytest.raises(WrittenFilesLostError):
        committer.append_in_sequence(taken.files, "retries", 0)
    assert committer.snapshot() == before
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 20, 30)), kept])
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 30), PartitionRange(1, 0, 10))


def test_vacuumed_replacement_keeps_old_files(tmp_path: Path) -> None:
    uri = str(tmp_path)
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer)
    (join,) = plan_merges(committer)
    written = merge_table_files(join)
    set_file_age(tmp_path / written[0].path, ORPHAN_HOURS_MIN + 1)
    vacuum_table(open_table(uri), keep_hours=KEEP_HOURS_MIN)
    assert commit_merged_file(committer, join, written) == CompactionStats()
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 40))
    assert compact_table(uri).files_removed == 4


def test_repeated_commit_succeeds_after_files_were_replaced(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    unit = write_task_output(tmp_path, PartitionRange(0, 0, 10))
    committer.commit([unit])
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 10, 20))])
    compact_table(str(tmp_path))
    vacuum_table(open_table(str(tmp_path)), keep_hours=0, pipeline_stopped=True)
    assert not (tmp_path / unit.files[0].path).exists()
    assert committer.commit([unit]).committed_outputs == (unit,)


def test_short_vacuum_retention_is_rejected_while_pipeline_may_run(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    orphan = tmp_path / write_task_output(tmp_path, PartitionRange(0, 0, 5)).files[0].path
    with pytest.raises(VacuumRejectedError, match="stop the pipeline"):
        vacuum_table(open_table(str(tmp_path)), keep_hours=0)
    assert orphan.exists()
    vacuum_table(open_table(str(tmp_path)), keep_hours=0, pipeline_stopped=True)
    assert not orphan.exists()
    assert committer.snapshot().next_offsets == {}


def test_vacuum_after_compaction_keeps_rows(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer)
    compact_table(str(tmp_path))
    removed = vacuum_table(open_table(str(tmp_path)), keep_hours=0, pipeline_stopped=True)
    assert len(removed) == 4
    assert len(files(tmp_path)) == 1
    assert committer.next_offsets() == {0: 40}
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 40))


def create_tables(root: Path, range_count: int = 4) -> None:
    for kind in (TableKind.RAW, TableKind.DEAD_LETTERS):
        table = create_empty_table(root, kind)
        for start in range(0, 10 * range_count, 10):
            commit_rows(table, 0, build_record_columns(range(start, start + 10), [b"x"] * 10))


def test_all_tables_and_dead_letter_tables_are_compacted(tmp_path: Path) -> None:
    create_tables(tmp_path)
    told: list[tuple[int, int]] = []
    done = compact_tables(str(tmp_path), progress=lambda *at: told.append(at))
    assert [(each.name, each.compacted.files_removed, each.compacted.files_added) for each in done] == [
        (TOPIC, 4, 1),
        (f"{TOPIC}~dead_letters", 4, 1),
    ]
    assert told[-1][0] == told[-1][1] > 0
    for kind in (TableKind.RAW, TableKind.DEAD_LETTERS):
        assert read_offsets(create_empty_table(tmp_path, kind).snapshot()) == expected_offsets(PartitionRange(0, 0, 40))
    assert [each.compacted.files_removed for each in compact_tables(str(tmp_path))] == [0, 0]


def test_only_named_topics_are_compacted(tmp_path: Path) -> None:
    create_tables(tmp_path)
    assert len(compact_tables(str(tmp_path), [TOPIC])) == 2
    with pytest.raises(TableMissingError, match="orderz"):
        compact_tables(str(tmp_path), ["orderz"])
    with pytest.raises(TableMissingError, match=r"no tables under .*nowhere"):
        compact_tables(str(tmp_path / "nowhere"))


def test_completed_merges_survive_later_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_tables(tmp_path)
    monkeypatch.setattr(module, "MERGES_PER_ROUND", 1)
    seen: list[int] = []

    def stop(done_bytes: int, all_bytes: int) -> None:
        seen.append(done_bytes)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact_tables(str(tmp_path), progress=stop)
    assert len(seen) == 1
    assert len(create_empty_table(tmp_path, TableKind.RAW).snapshot().file_uris) == 1


@pytest.mark.slow
def test_merged_rows_are_in_offset_order(tmp_path: Path) -> None:
    """A range of offsets should be in few row groups."""
    table = create_empty_table(tmp_path, TableKind.RAW)
    for start in range(0, 60, 10):
        for partition in (2, 0, 1):
            commit_rows(table, partition, build_record_columns(range(start, start + 10), [b"x"] * 10))
    compact_tables(str(tmp_path))
    (file,) = table.files().files
    assert (file.partitions, file.offsets) == ((0, 2), (0, 59))
    found = read_rows(table.snapshot())
    positions = list(zip(found["_partition"].to_pylist(), found["_offset"].to_pylist(), strict=True))
    assert positions == expected_offsets(PartitionRange(0, 0, 60), PartitionRange(1, 0, 60), PartitionRange(2, 0, 60))


@pytest.mark.slow
def test_concurrent_landing_compaction_and_vacuum_keep_rows_once(tmp_path: Path) -> None:
    table = create_empty_table(tmp_path, TableKind.RAW)
    range_count = 40

    def land_ranges(partition: int) -> None:
        mine = create_empty_table(tmp_path, TableKind.RAW)
        for start in range(0, 5 * range_count, 5):
            commit_rows(mine, partition, build_record_columns(range(start, start + 5), [b"x"] * 5))

    def compact_repeatedly() -> int:
        removed = 0
        while not all(landing.done() for landing in landings):
            (done,) = compact_tables(str(tmp_path), vacuum_options=VacuumOptions(keep_hours=1))
            removed += done.compacted.files_removed
        return removed

    with ThreadPoolExecutor(4) as pool:
        landings = [pool.submit(land_ranges, partition) for partition in range(2)]
        compactions = [pool.submit(compact_repeatedly) for _ in range(2)]
        for landing in landings:
            landing.result()
        removed = sum(compaction.result() for compaction in compactions)
    assert removed > range_count
    compact_tables(str(tmp_path))
    snapshot = table.snapshot()
    assert len(snapshot.file_uris) == 1
    assert snapshot.next_offsets == {0: 5 * range_count, 1: 5 * range_count}
    assert read_offsets(snapshot) == expected_offsets(
        PartitionRange(0, 0, 5 * range_count), PartitionRange(1, 0, 5 * range_count)
    )


def test_short_vacuum_retention_is_rejected_before_compaction(tmp_path: Path) -> None:
    create_tables(tmp_path)
    with pytest.raises(VacuumRejectedError, match="stop the pipeline"):
        compact_tables(str(tmp_path), vacuum_options=VacuumOptions(keep_hours=0))
    assert len(create_empty_table(tmp_path, TableKind.RAW).snapshot().file_uris) == 4
    done = compact_tables(str(tmp_path), vacuum_options=VacuumOptions(keep_hours=0, pipeline_stopped=True))
    assert [each.vacuumed for each in done] == [4, 4]
    assert read_offsets(create_empty_table(tmp_path, TableKind.RAW).snapshot()) == expected_offsets(
        PartitionRange(0, 0, 40)
    )


def test_compact_command_needs_no_spark_without_small_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create_tables(tmp_path, range_count=1)
    words = ["pipeline", "compact", "--table-root", str(tmp_path), "--master", "spark://nowhere:1"]
    assert main([*words, "--json"]) == 0
    assert [each["files_removed"] for each in json.loads(capsys.readouterr().out)] == [0, 0]
    assert main([*words, "--vacuum", "--retention-hours", "0"]) == 1
    assert "stop the pipeline" in capsys.readouterr().err
    assert main([*words, "--topics", "orderz"]) == 1
    assert capsys.readouterr().err == f"chronik: no table of orderz under {tmp_path}\n"


class CrashingTaskRunner:
    """A task runner that fails every job with a merge of one table, as if its worker crashed in all attempts."""

    def __init__(self, crashing: str) -> None:
        self._crashing = crashing
        self.jobs: list[int] = []

    def __call__(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        self.jobs.append(len(items))
        if any(self._crashing in item.table.uri for item in items if isinstance(item, MergeTask)):
            raise TaskFailedError("Python worker exited unexpectedly (crashed)")
        return run_locally(function, items)


def test_crashing_merge_does_not_stop_other_merges(tmp_path: Path) -> None:
    create_tables(tmp_path)
    tasks = CrashingTaskRunner("~dead_letters")
    with pytest.raises(CompactionFailedError) as failed:
        compact_tables(str(tmp_path), tasks=tasks)
    assert str(failed.value) == (
        f"1 of 2 merges failed: {TOPIC}~dead_letters: Python worker exited unexpectedly (crashed); "
        "the other files are merged, and nothing was vacuumed"
    )
    assert tasks.jobs == [2, 1, 1], "after a failed job, each merge runs in a job of its own"
    assert len(create_empty_table(tmp_path, TableKind.RAW).snapshot().file_uris) == 1
    assert len(create_empty_table(tmp_path, TableKind.DEAD_LETTERS).snapshot().file_uris) == 4


def test_ended_spark_stops_compaction(tmp_path: Path) -> None:
    create_tables(tmp_path)

    def lose_spark(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        raise SparkUnavailableError("the Spark JVM has ended")

    with pytest.raises(SparkUnavailableError):
        compact_tables(str(tmp_path), tasks=lose_spark)
