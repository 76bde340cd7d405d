"""Snapshots of earlier versions of Delta tables: by number and by time, after a vacuum, and without log entries."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from chronik.pipeline.tables.as_of import AsOfTime, AsOfVersion
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.delta.transaction_log import LOG_DIRECTORY
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.topic_table import TableSpec, TopicTable, VersionUnavailableError
from chronik.pipeline.tables.values.row_decoder import infer_statistics
from tests.pipeline.table_fixtures import (
    SPEC,
    compact_table,
    expected_offsets,
    open_test_table,
    read_offsets,
    write_task_output,
)

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def write_versions(directory: Path, count: int) -> TopicTable:
    """Create a table whose version n contains offsets 0 to n - 1."""
    table = open_test_table(directory)
    for number in range(count):
        table.commit([write_task_output(directory, PartitionRange(0, number, number + 1))])
    return table


def set_commit_times(directory: Path, *times: datetime) -> None:
    """Set the times in the log entries, from version 0 on."""
    for version, time in enumerate(times):
        entry = directory / LOG_DIRECTORY / f"{version:020}.json"
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = int(time.timestamp() * 1000)
        entry.write_text("\n".join(map(json.dumps, actions)))


def test_snapshot_of_a_version_has_its_files_and_next_offsets(tmp_path: Path) -> None:
    table = write_versions(tmp_path, 3)
    for version in range(4):
        snapshot = table.snapshot(AsOfVersion(version))
        assert (snapshot.version, snapshot.next_offsets) == (version, {0: version} if version else {})
        assert read_offsets(snapshot) == [(0, offset) for offset in range(version)]
    assert table.snapshot().version == 3


def test_snapshot_of_a_version_has_its_columns(tmp_path: Path) -> None:
    table = open_test_table(tmp_path, TableSpec(SPEC.topic, SPEC.topic_id, TableKind.DECODED))
    table.add_columns(infer_statistics([b'{"n": 1}']))
    assert "n" not in table.snapshot(AsOfVersion(0)).schema.names
    assert "n" in table.snapshot(AsOfVersion(1)).schema.names


def test_version_is_found_by_time(tmp_path: Path) -> None:
    table = write_versions(tmp_path, 4)
    times = [NOON + timedelta(minutes=number) for number in range(5)]
    set_commit_times(tmp_path, *times)
    for number, time in enumerate(times):
        for delay in (timedelta(), timedelta(seconds=59)):
            assert table.snapshot(AsOfTime(time + delay)).version == number
    assert table.snapshot(AsOfTime(datetime.now(UTC))).version == 4


def test_time_before_the_first_version_is_rejected(tmp_path: Path) -> None:
    table = write_versions(tmp_path, 1)
    set_commit_times(tmp_path, NOON)
    with pytest.raises(
        VersionUnavailableError,
        match=r"no version as of 2024-04-30 00:00:00 UTC: .* version 0 of 2024-05-01 12:00:00 UTC$",
    ):
        table.snapshot(AsOfTime(datetime(2024, 4, 30, tzinfo=UTC)))


def test_time_in_the_future_and_unknown_version_are_rejected(tmp_path: Path) -> None:
    table = write_versions(tmp_path, 1)
    with pytest.raises(VersionUnavailableError, match=r"is in the future$"):
        table.snapshot(AsOfTime(datetime.now(UTC) + timedelta(hours=1)))
    with pytest.raises(VersionUnavailableError, match=r"no version 2: the current version is 1$"):
        table.snapshot(AsOfVersion(2))


def test_vacuumed_version_names_the_oldest_complete_one(tmp_path: Path) -> None:
    table = write_versions(tmp_path, 3)
    compact_table(str(tmp_path))  # version 4 replaces the files of versions 1 to 3
    table.commit([write_task_output(tmp_path, PartitionRange(0, 3, 4))])
    assert read_offsets(table.snapshot(AsOfVersion(2))) == expected_offsets(PartitionRange(0, 0, 2))
    assert len(table.vacuum_files(0, orphans=False)) == 3
    for version in (1, 2, 3):
        with pytest.raises(
            VersionUnavailableError,
            match=f"has deleted files of version {version}: the oldest version that can be read is 4$",
        ):
            table.snapshot(AsOfVersion(version))
    assert read_offsets(table.snapshot(AsOfVersion(4))) == expected_offsets(PartitionRange(0, 0, 3))
    assert table.snapshot(AsOfVersion(0)).file_uris == (), "the version without files needs none"


def test_version_without_log_entries_names_the_oldest(tmp_path: Path) -> None:
    table = write_versions(tmp_path, 4)
    DeltaTable(str(tmp_path), version=2).create_checkpoint()
    for version in (0, 1):
        (tmp_path / LOG_DIRECTORY / f"{version:020}.json").unlink()
    with pytest.raises(
        VersionUnavailableError, match=r"version 1 was removed from the table's log: the oldest version is 2$"
    ):
        table.snapshot(AsOfVersion(1))
    with pytest.raises(VersionUnavailableError, match=r"is version 2 of .*; earlier ones were removed"):
        table.snapshot(AsOfTime(datetime(2020, 1, 1, tzinfo=UTC)))
    assert read_offsets(table.snapshot(AsOfVersion(2))) == expected_offsets(PartitionRange(0, 0, 2))
    assert table.snapshot(AsOfTime(datetime.now(UTC))).version == 4


def test_statistics_include_partition_values_and_bounds_of_columns(tmp_path: Path) -> None:
    snapshot = write_versions(tmp_path, 2).snapshot()
    statistics = snapshot.statistics
    assert statistics is not None
    assert statistics.rows.to_pylist() == [1, 1]
    assert sorted(statistics.lower["_offset"].to_pylist()) == sorted(statistics.upper["_offset"].to_pylist()) == [0, 1]
    assert {each.isoformat() for each in statistics.lower["_date"].to_pylist()} == {"2024-05-01"}
    assert statistics.null_counts["_timestamp_ms"].to_pylist() == [1, 1]
    assert [file.offsets for file in snapshot.live_files] == [
        (number, number) for number in statistics.lower["_offset"].to_pylist()
    ]
    assert [uri.rpartition("/")[2] for uri in snapshot.file_uris] == [
        file.path.rpartition("/")[2] for file in snapshot.live_files
    ]
