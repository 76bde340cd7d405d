"""Tests that rows and offsets of a Delta table stay consistent through failures and concurrent commits."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from chronik.pipeline.tables import table_properties
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.commit_plan import (
    CommitRejectedError,
    OverlappingRangesError,
    PartitionRange,
    TaskOutput,
    exclude_committed_offsets,
)
from chronik.pipeline.tables.delta import table as delta
from chronik.pipeline.tables.delta.table import FAILURES_MAX, DeltaTopicTable
from chronik.pipeline.tables.layout import DECODING_RULES_VERSION, TableKind
from chronik.pipeline.tables.partitioning import Partitioning
from chronik.pipeline.tables.topic_table import (
    SequenceConflictError,
    TableCommitError,
    TableMismatchError,
    TableMissingError,
    TableSpec,
)
from tests.pipeline.table_fixtures import SPEC, expected_offsets, open_test_table, read_offsets, write_task_output


def test_commit_adds_files_and_offsets_atomically(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    assert (committer.snapshot().next_offsets, committer.snapshot().file_uris) == ({}, ())
    spans = (PartitionRange(0, 0, 10), PartitionRange(2, 5, 8))
    committed = committer.commit([write_task_output(tmp_path, *spans)])
    snapshot = committer.snapshot()
    assert committed.rows == 13
    assert committed.next_offsets == snapshot.next_offsets == {0: 10, 2: 8}
    assert committed.version == snapshot.version == 1
    assert read_offsets(snapshot) == expected_offsets(*spans)


def test_repeated_commit_creates_no_new_version(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    unit = write_task_output(tmp_path, PartitionRange(0, 0, 10))
    first = committer.commit([unit])
    again = committer.commit([unit])
    written_anew = committer.commit([write_task_output(tmp_path, PartitionRange(0, 0, 10))])
    assert (again.rows, written_anew.rows, len(written_anew.committed_outputs)) == (0, 0, 1)
    assert again.version == written_anew.version == first.version
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 10))


def test_range_without_records_advances_next_offset(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    committed = committer.commit([TaskOutput((PartitionRange(0, 0, 1),))])
    assert (committed.rows, committer.next_offsets()) == (0, {0: 1})
    assert committer.commit([TaskOutput((PartitionRange(0, 0, 1),))]).version == committed.version


def test_rejected_commit_leaves_table_unchanged(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 0, 10))])
    for wrong in (PartitionRange(0, 5, 15), PartitionRange(0, 11, 12)):
        with pytest.raises(CommitRejectedError):
            committer.commit([write_task_output(tmp_path, PartitionRange(1, 0, 5)), write_task_output(tmp_path, wrong)])
    assert committer.next_offsets() == {0: 10}
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 10))


def test_commit_with_lost_response_is_found_in_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committer = open_test_table(tmp_path)
    commit = DeltaTable.create_write_transaction
    lost = []

    def commit_and_lose_response(self: DeltaTable, *arguments: Any, **named: Any) -> None:
        commit(self, *arguments, **named)
        lost.append(1)
        raise OSError("connection reset")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_and_lose_response)
    committed = committer.commit([write_task_output(tmp_path, PartitionRange(0, 0, 10))])
    assert lost == [1]
    assert committed.next_offsets == {0: 10}
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 10))


def test_commit_fails_after_repeated_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committer = open_test_table(tmp_path)
    attempts = []

    def fail(self: DeltaTable, *arguments: Any, **named: Any) -> None:
        attempts.append(1)
        raise OSError("no space left on device")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", fail)
    with pytest.raises(TableCommitError, match="no space left"):
        committer.commit([write_task_output(tmp_path, PartitionRange(0, 0, 10))])
    assert len(attempts) == FAILURES_MAX


def test_concurrent_commit_of_same_range_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another driver commits the same range after the first read; the next attempt must see it."""
    committer, other = open_test_table(tmp_path), open_test_table(tmp_path)
    commit = DeltaTable.create_write_transaction
    mine, others = (
        write_task_output(tmp_path, PartitionRange(0, 0, 10)),
        write_task_output(tmp_path, PartitionRange(0, 0, 10)),
    )
    attempts = []

    def commit_after_other(self: DeltaTable, *arguments: Any, **named: Any) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            other.commit([others])
        commit(self, *arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit_after_other)
    committed = committer.commit([mine])
    assert (committed.rows, committed.committed_outputs) == (0, (mine,))
    assert len(attempts) == 2
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 10))


@pytest.mark.slow
def test_concurrent_drivers_land_every_offset_once(tmp_path: Path) -> None:
    """Each driver plans from the table, writes and commits, and plans again after a rejection."""
    open_test_table(tmp_path)
    end = 120

    def drive(step: int) -> int:
        committer = open_test_table(tmp_path)
        refused = 0
        while spans := exclude_committed_offsets(
            [PartitionRange(0, 0, end), PartitionRange(step, 0, end)], committer.next_offsets()
        ):
            cut = [PartitionRange(span.partition, span.start, min(span.end, span.start + step)) for span in spans]
            try:
                committer.commit([write_task_output(tmp_path, span) for span in cut])
            except OverlappingRangesError:
                refused += 1
        return refused

    steps = (11, 17, 23)
    with ThreadPoolExecutor(len(steps)) as drivers:
        list(drivers.map(drive, steps))
    snapshot = open_test_table(tmp_path).snapshot()
    assert snapshot.next_offsets == dict.fromkeys((0, *steps), end)
    assert read_offsets(snapshot) == expected_offsets(*(PartitionRange(partition, 0, end) for partition in (0, *steps)))


KILLED_DRIVER = """
import os, sys
from pathlib import Path
from chronik.pipeline.tables.commit_plan import PartitionRange
from tests.pipeline.table_fixtures import open_test_table, write_task_output
directory, where = Path(sys.argv[1]), sys.argv[2]
committer = open_test_table(directory)
unit = write_task_output(directory, PartitionRange(0, 0, 10))
if where == "after the commit":
    committer.commit([unit])
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["between file and commit", "after the commit"])
def test_killed_driver_leaves_only_orphan_files(tmp_path: Path, where: str) -> None:
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")]))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_DRIVER, str(tmp_path), where], env=os.environ | {"PYTHONPATH": path}, check=False
    )
    assert killed.returncode == -9
    assert len(list(tmp_path.glob("_date=*/*.parquet"))) == 1
    committer = open_test_table(tmp_path)
    committed = committer.commit([write_task_output(tmp_path, PartitionRange(0, 0, 10))])
    assert committed.rows == (10 if where == "between file and commit" else 0)
    snapshot = committer.snapshot()
    assert len(snapshot.file_uris) == 1
    assert read_offsets(snapshot) == expected_offsets(PartitionRange(0, 0, 10))


def test_offsets_survive_log_checkpoints(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    for start in range(0, 30, 10):
        committer.commit(
            [write_task_output(tmp_path, PartitionRange(0, start, start + 10), PartitionRange(1, start, start + 10))]
        )
    DeltaTable(str(tmp_path)).create_checkpoint()
    for commit in (tmp_path / "_delta_log").glob("*.json"):
        if commit.stem < f"{3:020}":
            commit.unlink()
    assert open_test_table(tmp_path).next_offsets() == {0: 30, 1: 30}


def test_concurrent_creation_opens_same_table(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as openers:
        found = list(openers.map(lambda _: open_test_table(tmp_path), range(8)))
    assert {committer.snapshot().version for committer in found} == {0}


def test_table_of_another_topic_is_rejected(tmp_path: Path) -> None:
    open_test_table(tmp_path)
    recreated = TableSpec(SPEC.topic, "AAAAAAAAAAAAAAAAAAAAAg")
    with pytest.raises(TableMismatchError, match=r"AAAAAAAAAAAAAAAAAAAAAQ.*not for.*AAAAAAAAAAAAAAAAAAAAAg"):
        open_test_table(tmp_path, recreated)
    for other in (TableSpec(*_names(), kind=TableKind.DECODED), TableSpec(*_names(), partitioning=Partitioning.HOUR)):
        with pytest.raises(TableMismatchError):
            open_test_table(tmp_path, other)


def _names() -> tuple[str, str]:
    return SPEC.topic, SPEC.topic_id


def test_opening_missing_table_raises_table_missing(tmp_path: Path) -> None:
    with pytest.raises(TableMissingError):
        open_table(str(tmp_path / "nothing"))


def test_table_with_transaction_expiry_is_rejected(tmp_path: Path) -> None:
    open_test_table(tmp_path)
    alter = DeltaTable(str(tmp_path)).alter
    alter.set_table_properties({delta.TRANSACTION_EXPIRY_PROPERTY: "interval 1 days"}, raise_if_not_exists=False)
    with pytest.raises(TableMismatchError, match="expire"):
        open_test_table(tmp_path)


def test_numbered_append_is_committed_once(tmp_path: Path) -> None:
    committer = open_test_table(tmp_path)
    assert committer.next_sequence_number("retries") == 0
    committer.append_in_sequence(write_task_output(tmp_path, PartitionRange(0, 0, 3)).files, "retries", 0)
    with pytest.raises(SequenceConflictError):
        open_test_table(tmp_path).append_in_sequence(
            write_task_output(tmp_path, PartitionRange(0, 0, 3)).files, "retries", 0
        )
    with pytest.raises(SequenceConflictError):
        committer.append_in_sequence(write_task_output(tmp_path, PartitionRange(0, 0, 3)).files, "retries", 2)
    assert committer.next_sequence_number("retries") == 1
    assert committer.next_offsets() == {}
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 3))


def test_dead_letter_table_accepts_gaps_between_ranges(tmp_path: Path) -> None:
    spec = TableSpec(SPEC.topic, SPEC.topic_id, TableKind.DEAD_LETTERS)
    committer = open_test_table(tmp_path, spec)
    schema = committer.snapshot().schema
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 0, 2), schema=schema)])
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 50, 52), schema=schema)])
    committer.commit([write_task_output(tmp_path, PartitionRange(0, 0, 2), schema=schema)])
    assert read_offsets(committer.snapshot()) == expected_offsets(PartitionRange(0, 0, 2), PartitionRange(0, 50, 52))


def test_driver_with_older_decoding_rules_fails_after_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = open_test_table(tmp_path)
    older.commit([write_task_output(tmp_path, PartitionRange(0, 0, 10))])
    with monkeypatch.context() as upgraded:
        upgraded.setattr(table_properties, "DECODING_RULES_VERSION", DECODING_RULES_VERSION + 1)
        newer = open_test_table(tmp_path)
        assert newer.next_offsets() == {0: 10}, "rows of the older driver must stay"
    for late in (
        lambda: older.commit([write_task_output(tmp_path, PartitionRange(0, 10, 20))]),
        lambda: older.append_in_sequence(write_task_output(tmp_path, PartitionRange(0, 10, 20)).files, "letters", 0),
        lambda: open_test_table(tmp_path),
    ):
        with pytest.raises(TableMismatchError, match="of a newer version"):
            late()
    monkeypatch.setattr(table_properties, "DECODING_RULES_VERSION", DECODING_RULES_VERSION + 1)
    newer.commit([write_task_output(tmp_path, PartitionRange(0, 10, 20))])
    assert read_offsets(newer.snapshot()) == expected_offsets(PartitionRange(0, 0, 20))


def test_rules_upgrade_during_commit_fails_older_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = open_test_table(tmp_path)
    rules = DECODING_RULES_VERSION
    append = DeltaTopicTable._append

    def append_after_upgrade(committer: DeltaTopicTable, *arguments: Any) -> None:
        monkeypatch.setattr(DeltaTopicTable, "_append", append)
        monkeypatch.setattr(table_properties, "DECODING_RULES_VERSION", rules + 1)
        open_test_table(tmp_path)
        monkeypatch.setattr(table_properties, "DECODING_RULES_VERSION", rules)
        append(committer, *arguments)

    monkeypatch.setattr(DeltaTopicTable, "_append", append_after_upgrade)
    with pytest.raises(TableMismatchError, match="of a newer version"):
        older.commit([write_task_output(tmp_path, PartitionRange(0, 0, 10))])
    monkeypatch.setattr(table_properties, "DECODING_RULES_VERSION", rules + 1)
    assert older.next_offsets() == {}


def test_table_without_decoding_rules_version_is_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_properties, "DECODING_RULES_VERSION", 0)
    open_test_table(tmp_path)
    monkeypatch.undo()
    open_test_table(tmp_path).commit([write_task_output(tmp_path, PartitionRange(0, 0, 10))])
    assert DeltaTable(str(tmp_path)).metadata().configuration[table_properties.DECODING_RULES_PROPERTY] == str(
        DECODING_RULES_VERSION
    )
