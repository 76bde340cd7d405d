"""Tests of compacting all tables under a root, also during landings and vacuums."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chronik.cli.main import main
from chronik.pipeline.tables.layout import Kind
from chronik.pipeline.tables.spans import Span
from chronik.pipeline.tables.topic_table import TableMissing
from chronik.pipeline.upkeep import compact as module
from chronik.pipeline.upkeep.compact import Vacuuming, compact_tables
from chronik.pipeline.upkeep.vacuum import VacuumRefused
from tests.pipeline.landing_rows import every, offsets, rows
from tests.pipeline.planted_rows import TOPIC, land, records, table_of


def create_tables(root: Path, range_count: int = 4) -> None:
    for kind in (Kind.RAW, Kind.DEAD_LETTERS):
        table = table_of(root, kind)
        for start in range(0, 10 * range_count, 10):
            land(table, 0, records(range(start, start + 10), [b"x"] * 10))


def test_all_tables_and_dead_letter_tables_are_compacted(tmp_path: Path) -> None:
    create_tables(tmp_path)
    told: list[tuple[int, int]] = []
    done = compact_tables(str(tmp_path), progress=lambda *at: told.append(at))
    assert [(each.name, each.compacted.files_removed, each.compacted.files_added) for each in done] == [
        (TOPIC, 4, 1),
        (f"{TOPIC}~dead_letters", 4, 1),
    ]
    assert told[-1][0] == told[-1][1] > 0
    for kind in (Kind.RAW, Kind.DEAD_LETTERS):
        assert offsets(table_of(tmp_path, kind).snapshot()) == every(Span(0, 0, 40))
    assert [each.compacted.files_removed for each in compact_tables(str(tmp_path))] == [0, 0]


def test_only_named_topics_are_compacted(tmp_path: Path) -> None:
    create_tables(tmp_path)
    assert len(compact_tables(str(tmp_path), [TOPIC])) == 2
    with pytest.raises(TableMissing, match="orderz"):
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
    assert len(table_of(tmp_path, Kind.RAW).snapshot().file_uris) == 1


@pytest.mark.slow
def test_merged_rows_are_in_offset_order(tmp_path: Path) -> None:
    """A range of offsets should be in few row groups."""
    table = table_of(tmp_path, Kind.RAW)
    for start in range(0, 60, 10):
        for partition in (2, 0, 1):
            land(table, partition, records(range(start, start + 10), [b"x"] * 10))
    compact_tables(str(tmp_path))
    (file,) = table.files().files
    assert (file.partitions, file.offsets) == ((0, 2), (0, 59))
    found = rows(table.snapshot())
    positions = list(zip(found["_partition"].to_pylist(), found["_offset"].to_pylist(), strict=True))
    assert positions == every(Span(0, 0, 60), Span(1, 0, 60), Span(2, 0, 60))


@pytest.mark.slow
def test_concurrent_landing_compaction_and_vacuum_keep_rows_once(tmp_path: Path) -> None:
    table = table_of(tmp_path, Kind.RAW)
    range_count = 40

    def land_ranges(partition: int) -> None:
        mine = table_of(tmp_path, Kind.RAW)
        for start in range(0, 5 * range_count, 5):
            land(mine, partition, records(range(start, start + 5), [b"x"] * 5))

    def compact_repeatedly() -> int:
        removed = 0
        while not all(landing.done() for landing in landings):
            (done,) = compact_tables(str(tmp_path), vacuuming=Vacuuming(keep_hours=1))
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
    assert offsets(snapshot) == every(Span(0, 0, 5 * range_count), Span(1, 0, 5 * range_count))


def test_short_vacuum_retention_is_rejected_before_compaction(tmp_path: Path) -> None:
    create_tables(tmp_path)
    with pytest.raises(VacuumRefused, match="stop the pipeline"):
        compact_tables(str(tmp_path), vacuuming=Vacuuming(keep_hours=0))
    assert len(table_of(tmp_path, Kind.RAW).snapshot().file_uris) == 4
    done = compact_tables(str(tmp_path), vacuuming=Vacuuming(keep_hours=0, pipeline_stopped=True))
    assert [each.vacuumed for each in done] == [4, 4]
    assert offsets(table_of(tmp_path, Kind.RAW).snapshot()) == every(Span(0, 0, 40))


def test_compact_command_needs_no_spark_without_small_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create_tables(tmp_path, range_count=1)
    words = ["pipeline", "compact", "--table-root", str(tmp_path), "--master", "spark://nowhere:1"]
    assert main([*words, "--json"]) == 0
    assert [each["files_removed"] for each in json.loads(capsys.readouterr().out)] == [0, 0]
    assert main([*words, "--vacuum", "--retention-hours", "0"]) == 1
    assert "stop the pipeline" in capsys.readouterr().err
    assert main([*words, "--topics", "orderz"]) == 1
    assert capsys.readouterr().err == f"chronik: no table of orderz under {tmp_path}\n"
