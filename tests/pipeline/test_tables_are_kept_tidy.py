"""Compaction and vacuum change files, never rows or offsets, and never what a pipeline is about to commit."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from chronik.pipeline.tables.columns import Kind
from chronik.pipeline.tables.committer import TableSpec
from chronik.pipeline.tables.delta import DeltaCommitter
from chronik.pipeline.tables.maintenance import KEEP_HOURS_MIN, VacuumRefused, compact, vacuum
from chronik.pipeline.tables.progress import Span
from tests.pipeline.landing_rows import SPEC, every, landed, offsets, opened, rows

HOUR_SECONDS = 3600


def landed_in_pieces(folder: Path, committer: DeltaCommitter, pieces: int = 4) -> None:
    for start in range(0, 10 * pieces, 10):
        committer.commit([landed(folder, Span(0, start, start + 10))])


def files(folder: Path) -> set[Path]:
    return set(folder.glob("_date=*/*.parquet"))


def age(path: Path, hours: float) -> None:
    then = time.time() - hours * HOUR_SECONDS
    os.utime(path, (then, then))


def test_small_files_are_joined_and_nothing_else_changes(tmp_path: Path) -> None:
    committer = opened(tmp_path)
    landed_in_pieces(tmp_path, committer)
    before = committer.snapshot()
    done = compact(str(tmp_path))
    after = committer.snapshot()
    assert (done.files_removed, done.files_added, done.version) == (4, 1, after.version)
    assert (len(before.file_uris), len(after.file_uris)) == (4, 1)
    assert after.next_offsets == before.next_offsets == {0: 40}
    assert rows(after).sort_by("_offset").equals(rows(before).sort_by("_offset"))


def test_compacting_twice_does_nothing_the_second_time(tmp_path: Path) -> None:
    committer = opened(tmp_path)
    landed_in_pieces(tmp_path, committer)
    first = compact(str(tmp_path))
    second = compact(str(tmp_path))
    assert (second.files_removed, second.version) == (0, first.version)


def test_files_from_before_a_column_are_joined_with_those_after(tmp_path: Path) -> None:
    committer = opened(tmp_path, TableSpec(SPEC.topic, SPEC.topic_id, Kind.DECODED))
    committer.commit([landed(tmp_path, Span(0, 0, 5), schema=committer.snapshot().schema)])
    evolved = committer.add_columns([pa.field("id", pa.int64())])
    committer.commit([landed(tmp_path, Span(0, 5, 9), schema=evolved.schema)])
    compact(str(tmp_path))
    snapshot = committer.snapshot()
    assert len(snapshot.file_uris) == 1
    assert offsets(snapshot) == every(Span(0, 0, 9))


def test_only_the_days_asked_for_are_compacted(tmp_path: Path) -> None:
    committer = opened(tmp_path)
    landed_in_pieces(tmp_path, committer)
    assert compact(str(tmp_path), partitions=[("_date", "=", "2023-01-01")]).files_removed == 0
    assert compact(str(tmp_path), partitions=[("_date", "=", "2024-05-01")]).files_removed == 4


def test_landing_goes_on_after_compaction(tmp_path: Path) -> None:
    committer = opened(tmp_path)
    landed_in_pieces(tmp_path, committer)
    unit = landed(tmp_path, Span(0, 40, 50))
    compact(str(tmp_path))
    assert committer.commit([unit]).rows == 10
    assert committer.commit([landed(tmp_path, Span(0, 30, 40))]).rows == 0
    assert offsets(committer.snapshot()) == every(Span(0, 0, 50))


def test_orphans_go_when_they_are_old_and_files_in_flight_stay(tmp_path: Path) -> None:
    committer = opened(tmp_path)
    landed_in_pieces(tmp_path, committer)
    committed = files(tmp_path)
    orphan = tmp_path / landed(tmp_path, Span(0, 40, 50)).files[0].path
    age(orphan, KEEP_HOURS_MIN + 1)
    in_flight = landed(tmp_path, Span(0, 40, 50))
    listed = vacuum(str(tmp_path), keep_hours=KEEP_HOURS_MIN, dry_run=True)
    assert [Path(path).name for path in listed] == [orphan.name]
    assert orphan.exists()
    vacuum(str(tmp_path), keep_hours=KEEP_HOURS_MIN)
    assert not orphan.exists()
    assert files(tmp_path) == committed | {tmp_path / in_flight.files[0].path}
    assert committer.commit([in_flight]).rows == 10
    assert offsets(committer.snapshot()) == every(Span(0, 0, 50))


def test_vacuum_under_an_hour_is_refused_while_a_pipeline_may_run(tmp_path: Path) -> None:
    committer = opened(tmp_path)
    orphan = tmp_path / landed(tmp_path, Span(0, 0, 5)).files[0].path
    with pytest.raises(VacuumRefused, match="stop the pipeline"):
        vacuum(str(tmp_path), keep_hours=0)
    assert orphan.exists()
    vacuum(str(tmp_path), keep_hours=0, pipeline_stopped=True)
    assert not orphan.exists()
    assert committer.snapshot().next_offsets == {}


def test_a_vacuum_after_compaction_leaves_the_rows(tmp_path: Path) -> None:
    committer = opened(tmp_path)
    landed_in_pieces(tmp_path, committer)
    compact(str(tmp_path))
    removed = vacuum(str(tmp_path), keep_hours=0, pipeline_stopped=True)
    assert len(removed) == 4
    assert len(files(tmp_path)) == 1
    assert committer.next_offsets() == {0: 40}
    assert offsets(committer.snapshot()) == every(Span(0, 0, 40))
