"""Tests that commits are durable, and that a log entry torn by a power failure is reported."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from chronik.pipeline.table_maintenance.merges import vacuum_table
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.delta import table as delta
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.partitioning import Partitioning
from chronik.pipeline.tables.topic_table import TableSpec, TopicTable, TornLogError
from chronik.pipeline.tables.values.row_decoder import infer_statistics
from tests.pipeline.table_fixtures import (
    SPEC,
    compact_table,
    expected_offsets,
    open_test_table,
    read_offsets,
    write_task_output,
)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Record the synced paths in order."""
    found: list[Path] = []
    fsync = os.fsync

    def record_fsync(descriptor: int) -> None:
        found.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record_fsync)
    return found


def entry(directory: Path, version: int) -> Path:
    return directory / "_delta_log" / f"{version:020}.json"


def commit_ranges(directory: Path, committer: TopicTable, count: int) -> None:
    for start in range(0, 10 * count, 10):
        committer.commit([write_task_output(directory, PartitionRange(0, start, start + 10))])


def commit_functions(directory: Path, committer: TopicTable) -> dict[str, Callable[[], object]]:
    return {
        "data": lambda: committer.commit([write_task_output(directory, PartitionRange(0, 20, 30))]),
        "numbered": lambda: committer.append_in_sequence((), "retries", 0),
        "columns": lambda: committer.add_columns(infer_statistics([b'{"new": 1}'])),
        "replace": lambda: compact_table(str(directory)),
        "vacuum": lambda: vacuum_table(open_table(str(directory)), keep_hours=0, pipeline_stopped=True),
    }


@pytest.mark.parametrize("kind", ["data", "numbered", "columns", "replace", "vacuum"])
def test_commit_is_synced_before_it_returns(tmp_path: Path, synced: list[Path], kind: str) -> None:
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer, 2)
    if kind == "vacuum":
        write_task_output(tmp_path, PartitionRange(0, 20, 30))  # an orphan, so that the vacuum has something to delete
    before = committer.snapshot().version
    synced.clear()
    commit_functions(tmp_path, committer)[kind]()
    after = committer.snapshot().version
    assert after > before
    for version in range(before + 1, after + 1):
        rest = synced[synced.index(entry(tmp_path, version)) :]
        assert tmp_path / "_delta_log" in rest


def test_new_table_syncs_parent_directories(tmp_path: Path, synced: list[Path]) -> None:
    directory = tmp_path / "a" / "b" / "orders"
    open_test_table(directory)
    log = directory / "_delta_log"
    assert {entry(directory, 0), log, directory, directory.parent, directory.parent.parent, tmp_path} <= set(synced)


def test_partition_directories_are_synced(tmp_path: Path, synced: list[Path]) -> None:
    open_test_table(tmp_path, TableSpec(SPEC.topic, SPEC.topic_id, partitioning=Partitioning.HOUR))
    synced.clear()
    (file,) = write_task_output(tmp_path, PartitionRange(0, 0, 5), partitioning=Partitioning.HOUR).files
    hour = (tmp_path / file.path).parent
    assert {tmp_path / file.path, hour, hour.parent, tmp_path} <= set(synced)


def test_log_checkpoints_are_synced(tmp_path: Path, synced: list[Path]) -> None:
    commit_ranges(tmp_path, open_test_table(tmp_path), int(delta.CHECKPOINT_INTERVAL))
    log = tmp_path / "_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    assert {checkpoint, log / "_last_checkpoint"} <= set(synced)


def test_commit_syncs_previous_log_entry(tmp_path: Path, synced: list[Path]) -> None:
    """Another writer may not have synced it yet, and this commit depends on its rows."""
    commit_ranges(tmp_path, open_test_table(tmp_path), 1)
    committer = open_test_table(tmp_path)
    synced.clear()
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 10, 20))])
    assert synced.index(entry(tmp_path, 1)) < synced.index(entry(tmp_path, 2))


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("content", ["nothing", "half", "zeros"])
@pytest.mark.parametrize("back", [0, 1])
def test_torn_log_entry_is_reported_with_its_path(tmp_path: Path, content: str, back: int, checkpointed: bool) -> None:
    committer = open_test_table(tmp_path)
    count = int(delta.CHECKPOINT_INTERVAL) + 3 if checkpointed else 3
    commit_ranges(tmp_path, committer, count)
    assert (tmp_path / "_delta_log" / "_last_checkpoint").exists() == checkpointed
    torn = entry(tmp_path, count - back)
    whole = torn.read_bytes()
    torn.write_bytes({"nothing": b"", "half": whole[: len(whole) // 2], "zeros": bytes(len(whole))}[content])
    unit = write_task_output(tmp_path, PartitionRange(0, 10 * count, 10 * count + 10))
    uses: list[Callable[[], object]] = [
        lambda: open_test_table(tmp_path),
        lambda: open_table(str(tmp_path)),
        lambda: compact_table(str(tmp_path)),
    ]
    if not back:  # an open table does not read the entries again that it has applied
        uses += [committer.next_offsets, lambda: committer.commit([unit])]
    for use in uses:
        with pytest.raises(TornLogError, match=rf"{torn.name}.*{'backup' if back else 'delete the file'}"):
            use()


def test_records_land_again_after_torn_entry_is_deleted(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    commit_ranges(tmp_path, committer, 3)
    entry(tmp_path, 3).write_bytes(b"")
    with pytest.raises(TornLogError):
        committer.snapshot()
    entry(tmp_path, 3).unlink()
    assert committer.next_offsets() == {0: 20}
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 20, 30))])
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 30))


def test_log_entries_before_checkpoint_are_not_checked(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path, TableSpec(SPEC.topic, SPEC.topic_id, TableKind.DEAD_LETTERS))
    for number in range(int(delta.CHECKPOINT_INTERVAL) + 2):
        committer.append_in_sequence((), "retries", number)
    entry(tmp_path, 3).write_bytes(b"")
    assert (
        open_test_table(tmp_path, committer.spec).next_sequence_number("retries") == int(delta.CHECKPOINT_INTERVAL) + 2
    )
