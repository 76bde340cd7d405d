"""Tests of compacting all tables under a root, also during landings and vacuums."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chronik.cli.main import main
from chronik.pipeline.maintenance import compaction as module
from chronik.pipeline.maintenance.compaction import VacuumOptions, compact_tables
from chronik.pipeline.maintenance.vacuum import VacuumRejectedError
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.topic_table import TableMissingError
from tests.pipeline.table_builders import TOPIC, build_record_columns, commit_rows, create_empty_table
from tests.pipeline.table_fixtures import expected_offsets, read_offsets, read_rows


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
    assert compact_tables(str(tmp_path / "nowhere")) == []


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
