"""Iceberg tables in a SQLite catalog: rows, offsets, and commits whose response is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from chronik.errors import ConfigError
from chronik.pipeline.tables import catalog as table_catalog
from chronik.pipeline.tables.as_of import AsOfTime, AsOfVersion
from chronik.pipeline.tables.catalog import LOCAL_CATALOG, list_table_names, open_or_create_table, open_table
from chronik.pipeline.tables.commit_plan import OverlappingRangesError, PartitionRange, WrittenFilesLostError
from chronik.pipeline.tables.iceberg.catalogs import from_table_identifier, open_catalog, to_table_identifier
from chronik.pipeline.tables.partitioning import Partitioning
from chronik.pipeline.tables.topic_table import (
    SequenceConflictError,
    TableCommitError,
    TableFormat,
    TableMismatchError,
    TableMissingError,
    VersionUnavailableError,
)
from tests.pipeline.table_fixtures import SPEC, expected_offsets
from tests.pipeline.tables.iceberg.iceberg_tables import (
    ICEBERG_SPEC,
    append,
    load_iceberg,
    open_iceberg_table,
    read_positions,
    write_output,
)

FIRST, SECOND = PartitionRange(0, 0, 10), PartitionRange(0, 10, 15)
Commit = Callable[..., Any]


def test_new_table_is_empty(tmp_path: Path) -> None:
    snapshot = open_iceberg_table(tmp_path).snapshot()
    assert (snapshot.version, snapshot.next_offsets, snapshot.file_uris) == (0, {}, ())
    assert snapshot.spec == ICEBERG_SPEC
    assert snapshot.schema.names == [
        "_partition", "_offset", "_timestamp", "_timestamp_ms", "_key", "_headers", "_value_crc32c", "_date", "_value"
    ]  # fmt: skip


def test_committed_rows_are_in_the_snapshot_with_their_offsets(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path)
    spans = (FIRST, PartitionRange(3, 5, 8))
    result = table.commit([write_output(table, *spans)])
    snapshot = open_table(table.uri).snapshot()
    assert (result.rows, result.version) == (13, snapshot.version)
    assert snapshot.next_offsets == {0: 10, 3: 8} == table.next_offsets()
    assert read_positions(snapshot.files) == expected_offsets(*spans)
    assert [file.partition_values for file in snapshot.live_files] == [(date(2024, 5, 1),)]
    assert (snapshot.live_files[0].partitions, snapshot.live_files[0].offsets) == ((0, 3), (0, 9))


def test_pyiceberg_reads_the_rows(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path)
    append(table, FIRST)
    append(table, SECOND)
    found = load_iceberg(table).scan(row_filter="_offset >= 8").to_arrow()
    assert sorted(found["_offset"].to_pylist()) == list(range(8, 15))
    assert "_date" not in found.column_names
    assert found["_value"].to_pylist()[0].startswith(b"value 0/")


def test_metrics_and_partitions_let_pyiceberg_skip_files(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path)
    append(table, FIRST)
    day_later = [1_714_564_800_000 + 86_400_000] * 5
    table.commit([write_output(table, SECOND, timestamps_ms=day_later)])
    plain = load_iceberg(table)
    assert len(list(plain.scan(row_filter="_offset < 10").plan_files())) == 1
    assert len(list(plain.scan(row_filter="_timestamp >= '2024-05-02T00:00:00+00:00'").plan_files())) == 1
    assert plain.metadata.sort_order().fields


def test_second_commit_of_the_same_ranges_adds_nothing(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path)
    output = write_output(table, FIRST)
    table.commit([output])
    again = open_iceberg_table(tmp_path).commit([output])
    assert (again.rows, again.committed_outputs) == (0, (output,))
    assert read_positions(table.files()) == expected_offsets(FIRST)


def test_overlapping_ranges_are_rejected(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path)
    append(table, FIRST)
    with pytest.raises(OverlappingRangesError) as rejected:
        append(table, PartitionRange(0, 5, 15))
    assert not rejected.value.is_undecided


def test_deleted_files_are_not_committed(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path)
    output = write_output(table, FIRST)
    table.storage.discard_files([output.files[0].path])
    with pytest.raises(WrittenFilesLostError):
        table.commit([output])


def test_sequence_numbers_are_committed_once(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path)
    output = write_output(table, FIRST)
    table.append_in_sequence(output.files, "late", 0)
    assert table.next_sequence_number("late") == 1
    with pytest.raises(SequenceConflictError, match="is 1, not 0"):
        table.append_in_sequence(output.files, "late", 0)
    assert table.next_offsets() == {}


def test_concurrent_writers_commit_every_range_once(tmp_path: Path) -> None:
    open_iceberg_table(tmp_path)
    spans = [PartitionRange(partition, 0, 3) for partition in range(8)]

    def write(span: PartitionRange) -> None:
        append(open_iceberg_table(tmp_path), span)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, spans))
    table = open_iceberg_table(tmp_path)
    assert read_positions(table.files()) == expected_offsets(*spans)
    assert table.next_offsets() == dict.fromkeys(range(8), 3)


# Responses


def fail_commits(monkeypatch: pytest.MonkeyPatch, *responses: Callable[[Commit], Any]) -> None:
    """Let the next commits fail as the responses do; each gets the function that commits."""
    commit, left = SqlCatalog.commit_table, list(responses)

    def send(self: SqlCatalog, *arguments: Any) -> Any:
        def apply() -> Any:
            return commit(self, *arguments)

        return left.pop(0)(apply) if left else apply()

    monkeypatch.setattr(SqlCatalog, "commit_table", send)


def lose_response(apply: Commit) -> None:
    apply()
    raise CommitStateUnknownException("gateway timeout")


def lose_request(_: Commit) -> None:
    raise ConnectionResetError("connection reset by peer")


def answer_own_success_with_conflict(apply: Commit) -> None:
    apply()
    apply()  # the catalog rejects the repetition


@pytest.mark.parametrize("response", [lose_response, lose_request, answer_own_success_with_conflict])
def test_rows_are_committed_once_after_a_failed_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, response: Callable[[Commit], Any]
) -> None:
    table = open_iceberg_table(tmp_path)
    fail_commits(monkeypatch, response)
    assert table.commit([write_output(table, FIRST)]).rows == 10
    assert read_positions(table.files()) == expected_offsets(FIRST)
    assert len(load_iceberg(table).metadata.snapshots) == 1


def test_lost_response_is_recognized_after_another_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_iceberg_table(tmp_path)
    other = open_iceberg_table(tmp_path)
    after = write_output(other, SECOND)

    def lose_response_before_other(apply: Commit) -> None:
        apply()
        other.commit([after])
        raise CommitStateUnknownException("gateway timeout")

    fail_commits(monkeypatch, lose_response_before_other)
    assert table.commit([write_output(table, FIRST)]).rows == 10
    assert table.next_offsets() == {0: 15}
    assert read_positions(table.files()) == expected_offsets(FIRST, SECOND)


def test_rejection_after_a_lost_request_is_undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_iceberg_table(tmp_path)
    other = open_iceberg_table(tmp_path)
    longer = write_output(other, PartitionRange(0, 0, 4))

    def lose_request_before_other(_: Commit) -> None:
        other.commit([longer])
        raise TimeoutError("timed out")

    fail_commits(monkeypatch, lose_request_before_other)
    with pytest.raises(OverlappingRangesError) as rejected:
        append(table, FIRST)
    assert rejected.value.is_undecided


def test_conflict_in_a_sql_catalog_is_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_iceberg_table(tmp_path)
    other = open_iceberg_table(tmp_path)
    longer = write_output(other, PartitionRange(0, 0, 4))

    def lose_race(apply: Commit) -> None:
        other.commit([longer])
        apply()

    fail_commits(monkeypatch, lose_race)
    with pytest.raises(OverlappingRangesError) as rejected:
        append(table, FIRST)
    assert not rejected.value.is_undecided


def test_permanent_failure_is_reported_with_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_iceberg_table(tmp_path)

    def refuse(_: Commit) -> None:
        raise CommitFailedException("the catalog is read-only")

    fail_commits(monkeypatch, *[refuse] * 10)
    with pytest.raises(TableCommitError, match="read-only"):
        append(table, FIRST)


# Versions


def test_earlier_snapshot_has_its_rows_and_offsets(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path)
    append(table, FIRST)
    first = table.snapshot().version
    append(table, SECOND)
    found = table.snapshot(AsOfVersion(first))
    assert (found.version, found.next_offsets) == (first, {0: 10})
    assert read_positions(found.files) == expected_offsets(FIRST)
    with pytest.raises(VersionUnavailableError, match="no snapshot 7"):
        table.snapshot(AsOfVersion(7))


def test_snapshot_as_of_a_time_is_the_one_that_was_current(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path)
    append(table, FIRST)
    first_ms = load_iceberg(table).metadata.current_snapshot().timestamp_ms
    append(table, SECOND)
    at = datetime.fromtimestamp(first_ms / 1000, UTC)
    assert table.snapshot(AsOfTime(at)).next_offsets == {0: 10}
    with pytest.raises(VersionUnavailableError, match="as of 2020"):
        table.snapshot(AsOfTime(datetime(2020, 1, 1, tzinfo=UTC)))


# Rollback


def test_rolled_back_table_stops_landing_and_names_both_offsets(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path)
    append(table, FIRST)
    first = table.snapshot().version
    append(table, SECOND)
    load_iceberg(table).manage_snapshots().set_current_snapshot(snapshot_id=first).commit()
    with pytest.raises(TableMismatchError, match=r"end at offsets \{0: 10\}.* ended at \{0: 15\}"):
        table.next_offsets()
    with pytest.raises(TableMismatchError, match="rolled back"):
        append(table, SECOND)
    assert table.snapshot().next_offsets == {0: 10}


def test_offsets_survive_expiry_and_rewrites_by_other_tools(tmp_path: Path) -> None:
    table = open_iceberg_table(tmp_path)
    append(table, FIRST)
    plain = load_iceberg(table)
    plain.append(pa.Table.from_batches([], plain.scan().to_arrow().schema))
    current = load_iceberg(table).metadata.current_snapshot_id
    ids = [each.snapshot_id for each in load_iceberg(table).metadata.snapshots if each.snapshot_id != current]
    load_iceberg(table).maintenance.expire_snapshots().by_ids(ids).commit()
    assert table.next_offsets() == {0: 10}
    append(table, SECOND)
    assert read_positions(table.files()) == expected_offsets(FIRST, SECOND)


# Catalog


def test_tables_are_listed_with_the_names_of_their_topics(tmp_path: Path) -> None:
    names = ["EU.orders-v2", "orders", "orders_x2d", "orders~dead_letters"]
    for name in names:
        open_or_create_table(f"{tmp_path}/{name}", ICEBERG_SPEC)
    open_or_create_table(f"{tmp_path}/payments", SPEC)
    assert list_table_names(str(tmp_path)) == sorted([*names, "payments"])
    assert all(open_table(f"{tmp_path}/{name}").spec == ICEBERG_SPEC for name in names)


@pytest.mark.parametrize("name", ["orders", "a.b-C_x2e", "_x", "~", "x2e_"])
def test_names_of_tables_are_restored_from_those_in_the_catalog(name: str) -> None:
    identifier = to_table_identifier(name)
    assert set(identifier) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert from_table_identifier(identifier) == name


def test_table_of_another_format_is_rejected(tmp_path: Path) -> None:
    open_iceberg_table(tmp_path)
    with pytest.raises(TableMismatchError, match="in format iceberg, not delta"):
        open_or_create_table(f"{tmp_path}/orders", SPEC)
    other = replace(ICEBERG_SPEC, partitioning=Partitioning.NONE)
    with pytest.raises(TableMismatchError, match="partitioned by date"):
        open_iceberg_table(tmp_path, other)


def test_missing_table_is_reported(tmp_path: Path) -> None:
    open_iceberg_table(tmp_path)
    with pytest.raises(TableMissingError, match="payments"):
        open_table(f"{tmp_path}/payments")


def test_catalog_is_a_database_in_a_local_root_by_default(tmp_path: Path) -> None:
    assert open_iceberg_table(tmp_path).spec.table_format is TableFormat.ICEBERG
    assert (tmp_path / LOCAL_CATALOG).exists()


def test_root_may_have_special_characters(tmp_path: Path) -> None:
    root = tmp_path / "tables [1] {of} mine#é"
    table = open_iceberg_table(root)
    append(table, FIRST)
    assert read_positions(open_table(f"{root}/orders").files()) == expected_offsets(FIRST)
    assert load_iceberg(table).scan().to_arrow().num_rows == 10
    with pytest.raises(ConfigError, match=r"without \?"):
        open_iceberg_table(tmp_path / "what?")


def test_environment_names_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHRONIK_ICEBERG_CATALOG", f"sqlite:///{tmp_path}/elsewhere/catalog.db")
    open_iceberg_table(tmp_path / "tables")
    assert list_table_names(str(tmp_path / "tables")) == ["orders"]
    assert not (tmp_path / "tables" / LOCAL_CATALOG).exists()


def test_object_store_needs_a_catalog() -> None:
    with pytest.raises(ConfigError, match="pass --catalog URL or set CHRONIK_ICEBERG_CATALOG"):
        table_catalog.find_iceberg_catalog("s3://lake/tables", None, is_needed=True)


def test_invalid_catalog_url_is_rejected_without_its_password() -> None:
    with pytest.raises(ConfigError, match="mysql://me:…@host"):
        open_catalog("mysql://me:secret@host", {})


def test_missing_pyiceberg_is_reported_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyiceberg.catalog.sql", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[iceberg\]'"):
        table_catalog.require_iceberg()
