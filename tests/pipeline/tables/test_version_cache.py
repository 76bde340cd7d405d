"""Reuse of a table's loaded version, and detection of other writers' changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.commit_plan import OverlappingRangesError, PartitionRange
from chronik.pipeline.tables.delta import table as delta_table
from chronik.pipeline.tables.topic_table import TableMissingError
from tests.pipeline.table_fixtures import open_test_table, write_task_output


def span(start: int, end: int) -> PartitionRange:
    return PartitionRange(0, start, end)


def test_unchanged_table_is_loaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_test_table(tmp_path)
    loads = []
    load = delta_table.open_delta

    def count_load(*arguments: object) -> object:
        loads.append(arguments)
        return load(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(delta_table, "open_delta", count_load)
    for number in range(25):  # beyond a checkpoint
        assert table.next_offsets() == ({0: number * 10} if number else {})
        assert table.descriptor().schema.names
        table.commit([write_task_output(tmp_path, span(number * 10, number * 10 + 10))])
    assert len(loads) == 1
    assert open_table(str(tmp_path)).next_offsets() == table.next_offsets() == {0: 250}


def test_commits_of_another_writer_are_seen_by_readers_and_commits(tmp_path: Path) -> None:
    first, second = open_test_table(tmp_path), open_table(str(tmp_path))
    assert first.next_offsets() == second.next_offsets() == {}
    outputs = [write_task_output(tmp_path, span(start, start + 10)) for start in (0, 10, 20)]
    first.commit([outputs[0]])
    assert second.next_offsets() == {0: 10}
    second.commit([outputs[1]])
    with pytest.raises(OverlappingRangesError):
        first.commit([write_task_output(tmp_path, span(15, 25))])
    assert first.commit([outputs[1]]).rows == 0, "the other writer has committed these"
    first.commit([outputs[2]])
    assert first.next_offsets() == second.next_offsets() == {0: 30}


def test_recreated_table_with_the_same_version_is_loaded_again(tmp_path: Path) -> None:
    table = open_test_table(tmp_path)
    table.commit([write_task_output(tmp_path, span(0, 10))])
    assert table.next_offsets() == {0: 10}
    shutil.rmtree(tmp_path / "_delta_log")
    with pytest.raises(TableMissingError):
        table.next_offsets()
    open_test_table(tmp_path).commit([write_task_output(tmp_path, span(0, 7))])
    assert table.next_offsets() == {0: 7}
    table.commit([write_task_output(tmp_path, span(7, 9))])
    assert open_table(str(tmp_path)).next_offsets() == {0: 9}
    shutil.rmtree(tmp_path / "_delta_log")
    open_test_table(tmp_path)
    assert table.next_offsets() == {}


def test_commits_after_many_versions_of_another_writer_continue_the_table(tmp_path: Path) -> None:
    first, second = open_test_table(tmp_path), open_table(str(tmp_path))
    assert first.next_offsets() == {}
    for number in range(45):
        second.commit([write_task_output(tmp_path, span(number, number + 1))])
    for entry in sorted((tmp_path / "_delta_log").glob("*.json"))[:30]:
        entry.unlink()  # as a cleanup after the checkpoint does
    assert first.next_offsets() == {0: 45}
    first.commit([write_task_output(tmp_path, span(45, 46))])
    assert second.next_offsets() == {0: 46}
