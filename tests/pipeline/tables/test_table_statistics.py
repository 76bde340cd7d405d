"""Tests of the statistics of tables, and of the maintenance records and version expiry that they report."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from deltalake import DeltaTable

from chronik.pipeline.table_maintenance.merges import merge_table_files, plan_merges
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.delta import table as delta
from chronik.pipeline.tables.delta.table import DeltaTopicTable
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.table_statistics import (
    MaintenanceKind,
    MaintenanceRecord,
    decode_maintenance_record,
    encode_maintenance_record,
)
from chronik.pipeline.tables.topic_table import TableSpec, TopicTable
from tests.pipeline.table_fixtures import (
    NOON_2024_05_01_MS,
    SPEC,
    expected_offsets,
    open_test_table,
    read_offsets,
    write_task_output,
)

COMPACTION = MaintenanceRecord(MaintenanceKind.COMPACTION, 1_000, "host:7", 2_000, 4, 1, 900, 300)
VACUUM = MaintenanceRecord(MaintenanceKind.VACUUM, 5_000, "host:8", files_deleted=3, versions_expired=2)
DAY_SECONDS = 86_400


def commit_ranges(directory: Path, table: TopicTable, ends: Sequence[int]) -> None:
    for start, end in pairwise(ends):
        table.commit([write_task_output(directory, PartitionRange(0, start, end))])


def test_statistics_describe_current_version(tmp_path: Path) -> None:
    table = open_test_table(tmp_path)
    before_ms = int(time.time() * 1000)
    commit_ranges(tmp_path, table, [0, 10, 30])
    found = table.statistics()
    assert (found.format, found.version, found.versions_kept) == ("delta", 2, 3)
    assert (found.rows, found.table_partitions, len(found.files)) == (30, 1, 2)
    assert [file.rows for file in sorted(found.files, key=lambda file: file.offsets)] == [10, 20]
    assert found.size_bytes == sum(path.stat().st_size for path in tmp_path.glob("_date=*/*.parquet"))
    assert found.count_small_files(found.size_bytes) == 2
    assert found.count_small_files(min(file.size_bytes for file in found.files)) == 0
    assert (found.oldest_data_ms, found.newest_data_ms) == (NOON_2024_05_01_MS, NOON_2024_05_01_MS + 29)
    assert abs(found.created_ms - before_ms) < 60_000
    assert all(before_ms <= file.written_ms <= before_ms + 60_000 for file in found.files)
    assert found.maintenance_records == ()


def test_statistics_of_empty_table_have_no_data(tmp_path: Path) -> None:
    found = open_test_table(tmp_path, TableSpec(SPEC.topic, SPEC.topic_id, TableKind.DEAD_LETTERS)).statistics()
    assert (found.rows, found.size_bytes, found.table_partitions) == (0, 0, 0)
    assert (found.oldest_data_ms, found.newest_data_ms, found.versions_kept) == (None, None, 1)


def test_rows_are_unknown_if_a_file_has_no_statistics(tmp_path: Path) -> None:
    table = open_test_table(tmp_path)
    output = write_task_output(tmp_path, PartitionRange(0, 0, 10))
    table.commit([replace(output, files=tuple(replace(file, stats="{}") for file in output.files))])
    found = table.statistics()
    assert (found.rows, [file.rows for file in found.files]) == (None, [None])
    assert (found.oldest_data_ms, found.newest_data_ms) == (None, None)


def test_last_maintenance_of_each_kind_is_read_from_table(tmp_path: Path) -> None:
    table = open_test_table(tmp_path)
    commit_ranges(tmp_path, table, [0, 10, 20])
    table.record_maintenance(VACUUM)
    (merge,) = plan_merges(table)
    assert table.replace_files(merge.table.files, merge_table_files(merge), data_change=False, record=COMPACTION)
    commit_ranges(tmp_path, table, [20, 30])
    found = open_table(str(tmp_path)).statistics()
    assert (found.last_compaction, found.last_vacuum, found.last_rebuild) == (COMPACTION, VACUUM, None)
    assert found.maintenance_records == (COMPACTION, VACUUM)
    assert read_offsets(table.snapshot()) == expected_offsets(PartitionRange(0, 0, 30))
    later = MaintenanceRecord(MaintenanceKind.VACUUM, 9_000, "host:9")
    table.record_maintenance(later)
    assert table.statistics().last_vacuum == later


def test_rejected_replacement_stores_no_record(tmp_path: Path) -> None:
    table = open_test_table(tmp_path)
    commit_ranges(tmp_path, table, [0, 10, 20])
    (merge,) = plan_merges(table)
    first, second = merge_table_files(merge), merge_table_files(merge)
    assert table.replace_files(merge.table.files, first, data_change=False)
    assert not table.replace_files(merge.table.files, second, data_change=False, record=COMPACTION)
    assert table.statistics().last_compaction is None


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "tidy", "at_ms": 1, "maintainer": "x"}', '{"kind": "vacuum"}'])
def test_record_in_unknown_format_is_ignored(text: str) -> None:
    assert decode_maintenance_record(text) is None


def test_record_of_later_version_is_decoded() -> None:
    text = encode_maintenance_record(COMPACTION)
    assert decode_maintenance_record(text.replace("{", '{"added_later": 1, ', 1)) == COMPACTION


def test_expired_versions_are_removed_and_rows_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CHECKPOINT_INTERVAL", "4")
    table = open_test_table(tmp_path)
    table.record_maintenance(VACUUM)
    commit_ranges(tmp_path, table, range(0, 61, 10))
    assert table.expire_versions(30 * 24) == 0, "all versions are new"
    set_log_age(tmp_path, 8)
    commit_ranges(tmp_path, table, [60, 70])
    kept = table.statistics().versions_kept
    removed = table.expire_versions(7 * 24)
    assert removed >= 4
    found = table.statistics()
    assert found.versions_kept == kept + 1 - removed, "setting the retention is a version"
    assert found.last_vacuum is None, "the entry with the record is removed"
    assert found.versions_kept < found.version
    DeltaTable(str(tmp_path), version=found.version - found.versions_kept + 1)
    assert table.next_offsets() == {0: 70}
    assert read_offsets(table.snapshot()) == expected_offsets(PartitionRange(0, 0, 70))


def test_expiry_sets_retention_of_delta_log_once(tmp_path: Path) -> None:
    table = open_test_table(tmp_path)
    table.expire_versions(24)
    version = table.snapshot().version
    assert DeltaTable(str(tmp_path)).metadata().configuration["delta.logRetentionDuration"] == "interval 24 hours"
    table.expire_versions(24)
    assert table.snapshot().version == version
    assert isinstance(open_table(str(tmp_path)), DeltaTopicTable)


def test_compacted_metadata_leaves_only_checkpoint_to_read(tmp_path: Path) -> None:
    table = open_test_table(tmp_path)
    commit_ranges(tmp_path, table, range(0, 41, 10))
    assert table.statistics().metadata_files == 5, "no checkpoint was written yet"
    table.compact_metadata()
    found = table.statistics()
    assert (found.metadata_files, found.version) == (0, 4), "a checkpoint is not a version"
    commit_ranges(tmp_path, table, [40, 50])
    assert table.statistics().metadata_files == 1
    assert read_offsets(table.snapshot()) == expected_offsets(PartitionRange(0, 0, 50))


def set_log_age(directory: Path, days: float) -> None:
    then = time.time() - days * DAY_SECONDS
    for path in (directory / "_delta_log").iterdir():
        if path.is_file():
            os.utime(path, (then, then))
