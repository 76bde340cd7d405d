"""Tests of tables in S3 without Spark: commits, listing, compaction, vacuum, and concurrent writers."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Thread

import pyarrow as pa
import pytest

from chronik.pipeline.maintenance.compaction import VacuumOptions, compact_tables
from chronik.pipeline.tables.catalog import list_table_names, open_or_create_table, open_table
from chronik.pipeline.tables.commit_plan import PartitionRange, TaskOutput
from chronik.pipeline.tables.layout import OFFSET, PARTITION
from chronik.pipeline.tables.table_files import scan
from chronik.pipeline.tables.table_statistics import MaintenanceKind, MaintenanceRecord
from chronik.pipeline.tables.topic_table import TableMissingError, TopicTable
from tests.pipeline.seaweedfs import S3Server
from tests.pipeline.table_fixtures import SPEC, build_batch, expected_offsets

pytestmark = pytest.mark.xdist_group("spark")


def write_rows(table: TopicTable, *spans: PartitionRange) -> TaskOutput:
    descriptor = table.descriptor()
    with descriptor.writer() as writer:
        for span in spans:
            writer.write(build_batch(span, descriptor.schema))
    return TaskOutput(spans, writer.files)


def read_offsets(root: str, options: Mapping[str, str]) -> list[tuple[int, int]]:
    batches = list(scan(open_table(f"{root}/orders", options).files(), [PARTITION, OFFSET]))
    rows = pa.Table.from_batches(batches)
    return sorted(zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True))


def test_committed_rows_are_read_back(s3_server: S3Server, s3_root: str) -> None:
    table = open_or_create_table(f"{s3_root}/orders", SPEC, s3_server.options)
    spans = PartitionRange(0, 0, 10), PartitionRange(1, 0, 5)
    result = table.commit([write_rows(table, *spans)])
    assert (result.rows, result.next_offsets) == (15, {0: 10, 1: 5})
    assert read_offsets(s3_root, s3_server.options) == expected_offsets(*spans)


def test_tables_are_listed_and_missing_ones_reported(s3_server: S3Server, s3_root: str) -> None:
    assert list_table_names(s3_root, s3_server.options) == []
    for name in ("orders", "orders~dead_letters"):
        open_or_create_table(f"{s3_root}/{name}", SPEC, s3_server.options)
    assert list_table_names(s3_root, s3_server.options) == ["orders", "orders~dead_letters"]
    with pytest.raises(TableMissingError, match=r"no table at s3://lake/.*/payments"):
        open_table(f"{s3_root}/payments", s3_server.options)


def test_concurrent_writers_commit_each_range_once(s3_server: S3Server, s3_root: str) -> None:
    open_or_create_table(f"{s3_root}/orders", SPEC, s3_server.options)

    def land(writer: int) -> None:
        table = open_table(f"{s3_root}/orders", s3_server.options)
        for number in range(5):
            table.commit([write_rows(table, PartitionRange(writer, 10 * number, 10 * number + 10))])

    threads = [Thread(target=land, args=(writer,)) for writer in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_offsets(s3_root, s3_server.options) == expected_offsets(*(PartitionRange(n, 0, 50) for n in range(3)))


def test_compaction_and_vacuum_keep_rows(s3_server: S3Server, s3_root: str) -> None:
    table = open_or_create_table(f"{s3_root}/orders", SPEC, s3_server.options)
    for start in range(0, 30, 10):
        table.commit([write_rows(table, PartitionRange(0, start, start + 10))])
    orphan = write_rows(table, PartitionRange(0, 30, 40)).files[0]
    vacuum = VacuumOptions(keep_hours=0, pipeline_stopped=True)
    [done] = compact_tables(s3_root, vacuum_options=vacuum, storage_options=s3_server.options)
    assert (done.compacted.files_removed, done.compacted.files_added, done.vacuumed) == (3, 1, 4)
    assert table.storage.get_modification_times([orphan.path]) == {}
    assert read_offsets(s3_root, s3_server.options) == expected_offsets(PartitionRange(0, 0, 30))


def test_options_of_environment_are_used_and_passed_to_tasks(
    s3_server: S3Server, s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    table = open_or_create_table(f"{s3_root}/orders", SPEC)
    descriptor = table.descriptor()
    for name in s3_server.environment:
        monkeypatch.delenv(name)
    assert descriptor.storage_options == s3_server.options
    assert "chronik-secret" not in repr(descriptor)
    with descriptor.writer() as writer:  # as a task in a process without the environment variables
        writer.write(build_batch(PartitionRange(0, 0, 3), descriptor.schema))
    assert len(writer.files) == 1


def test_statistics_and_maintenance_records_are_read_without_listing_data(s3_server: S3Server, s3_root: str) -> None:
    table = open_or_create_table(f"{s3_root}/orders", SPEC, s3_server.options)
    table.commit([write_rows(table, PartitionRange(0, 0, 10))])
    record = MaintenanceRecord(MaintenanceKind.VACUUM, 1_000, "host:7", files_deleted=2)
    table.record_maintenance(record)
    assert table.expire_versions(24) == 0
    found = open_table(f"{s3_root}/orders", s3_server.options).statistics()
    assert (found.rows, len(found.files), found.versions_kept, found.version) == (10, 1, 4, 3)
    assert (found.last_vacuum, found.last_compaction) == (record, None)
