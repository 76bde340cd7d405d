"""Iceberg tables on S3 in a REST catalog, both of SeaweedFS."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.types import StringType

from chronik.pipeline.maintenance.compaction import compact_tables
from chronik.pipeline.maintenance.rebuild import rebuild_table
from chronik.pipeline.tables.catalog import list_table_names, open_or_create_table, open_table
from chronik.pipeline.tables.commit_plan import OverlappingRangesError, PartitionRange
from chronik.pipeline.tables.iceberg.table import IcebergTopicTable
from chronik.pipeline.tables.storage_options import ICEBERG_CATALOG
from chronik.pipeline.tables.topic_table import TableMismatchError, TableMissingError, TopicTable
from chronik.pipeline.tables.values.table_schema import parse_schema_text
from tests.pipeline.seaweedfs import ACCESS_KEY_ID, SECRET_ACCESS_KEY, TABLE_BUCKET, S3Server
from tests.pipeline.table_fixtures import expected_offsets
from tests.pipeline.tables.iceberg.iceberg_tables import (
    ICEBERG_SPEC,
    append,
    load_iceberg,
    read_positions,
    write_output,
)
from tests.pipeline.tables.iceberg.test_iceberg_columns import DECODED, land, read_column

FIRST, SECOND = PartitionRange(0, 0, 10), PartitionRange(0, 10, 15)
ROOT = f"s3://{TABLE_BUCKET}/chronik"


@pytest.fixture
def options(s3_server: S3Server, without_aws_settings: None) -> dict[str, str]:
    properties = f"warehouse=s3://{TABLE_BUCKET}&credential={ACCESS_KEY_ID}:{SECRET_ACCESS_KEY}"
    return s3_server.options | {ICEBERG_CATALOG: f"{s3_server.catalog}?{properties}"}


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid.uuid4().hex[:8]}"


def open_rest_table(topic: str, options: Mapping[str, str]) -> TopicTable:
    return open_or_create_table(f"{ROOT}/{topic}", replace(ICEBERG_SPEC, topic=topic), options)


def open_decoded_table(topic: str, options: Mapping[str, str]) -> IcebergTopicTable:
    table = open_or_create_table(f"{ROOT}/{topic}", replace(DECODED, topic=topic), options)
    assert isinstance(table, IcebergTopicTable)
    return table


def test_rows_are_committed_compacted_and_read(topic: str, options: Mapping[str, str]) -> None:
    table = open_rest_table(topic, options)
    append(table, FIRST)
    append(table, SECOND)
    snapshot = open_table(f"{ROOT}/{topic}", options).snapshot()
    assert snapshot.next_offsets == {0: 15}
    assert read_positions(snapshot.files) == expected_offsets(FIRST, SECOND)
    assert topic in list_table_names(ROOT, options)
    (compacted,) = compact_tables(ROOT, [topic], storage_options=options)
    assert compacted.compacted.files_added == 1
    assert read_positions(table.files()) == expected_offsets(FIRST, SECOND)
    assert table.vacuum_files(1, orphans=True) == []


def test_concurrent_writers_commit_every_range_once(topic: str, options: Mapping[str, str]) -> None:
    open_rest_table(topic, options)
    spans = [PartitionRange(partition, 0, 3) for partition in range(4)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda span: append(open_rest_table(topic, options), span), spans))
    table = open_rest_table(topic, options)
    assert read_positions(table.files()) == expected_offsets(*spans)
    assert table.next_offsets() == dict.fromkeys(range(4), 3)


def test_conflict_with_own_lost_success_is_committed_once(
    topic: str, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = open_rest_table(topic, options)
    commit, requests = RestCatalog.commit_table, []

    def repeat(self: RestCatalog, *arguments: Any) -> Any:
        """Send every request twice, and return the second response, as a gateway may do."""
        requests.append(arguments)
        commit(self, *arguments)
        return commit(self, *arguments)

    output = write_output(table, FIRST)
    monkeypatch.setattr(RestCatalog, "commit_table", repeat)
    assert table.commit([output]).rows == 10
    monkeypatch.undo()
    assert len(requests) == 1
    assert read_positions(table.files()) == expected_offsets(FIRST)


def test_conflict_in_a_rest_catalog_is_undecided(
    topic: str, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = open_rest_table(topic, options), open_rest_table(topic, options)
    longer = write_output(other, PartitionRange(0, 0, 4))
    commit = RestCatalog.commit_table

    def lose_race(self: RestCatalog, *arguments: Any) -> Any:
        monkeypatch.setattr(RestCatalog, "commit_table", commit)
        other.commit([longer])
        with pytest.raises(CommitFailedException) as conflict:
            commit(self, *arguments)
        raise conflict.value

    output = write_output(table, FIRST)
    monkeypatch.setattr(RestCatalog, "commit_table", lose_race)
    with pytest.raises(OverlappingRangesError) as rejected:
        table.commit([output])
    assert rejected.value.is_undecided
    assert read_positions(table.files()) == expected_offsets(PartitionRange(0, 0, 4))


def test_missing_table_is_reported(topic: str, options: Mapping[str, str]) -> None:
    with pytest.raises(TableMissingError, match=topic):
        open_table(f"{ROOT}/{topic}", options)


def test_rebuilt_rows_are_read_by_field_id(topic: str, options: Mapping[str, str]) -> None:
    table = open_decoded_table(topic, options)
    land(table, [{"id": 1, "at": {"n": 1}}, {"id": 2, "at": {"n": 2}}])
    before = load_iceberg(table).metadata.current_snapshot_id
    schema = parse_schema_text("id double, at struct<n: bigint, m: string>")
    assert rebuild_table(ROOT, topic, schema, storage_options=options).rows == 2
    land(table, [{"id": 3.5, "at": {"n": 3, "m": "x"}}], 2)
    assert read_column(table, "id") == [1.0, 2.0, 3.5]
    assert read_column(table, "at") == [{"n": 1, "m": None}, {"n": 2, "m": None}, {"n": 3, "m": "x"}]
    earlier = load_iceberg(table).scan(snapshot_id=before).to_arrow()
    assert sorted(earlier["id"].to_pylist()) == [1, 2]


def test_rebuild_whose_responses_are_lost_replaces_the_rows_once(
    topic: str, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = open_decoded_table(topic, options)
    land(table, [{"id": 1}, {"id": 2}])
    commit, lost = RestCatalog.commit_table, set()

    def lose_first_response(self: RestCatalog, *arguments: Any) -> Any:
        response = commit(self, *arguments)
        kind = tuple(type(update).__name__ for update in arguments[2])
        if kind not in lost:
            lost.add(kind)
            raise ConnectionError("the response was lost")
        return response

    monkeypatch.setattr(RestCatalog, "commit_table", lose_first_response)
    assert rebuild_table(ROOT, topic, parse_schema_text("id double"), storage_options=options).rows == 2
    assert {"AddSchemaUpdate", "AddSnapshotUpdate"} <= {name for kind in lost for name in kind}
    assert read_column(table, "id") == [1.0, 2.0]
    assert len(load_iceberg(table).metadata.snapshots) == 2


def test_columns_that_another_tool_changes_are_landed_or_reported(topic: str, options: Mapping[str, str]) -> None:
    table = open_decoded_table(topic, options)
    land(table, [{"id": 1, "name": "Ada"}])
    with load_iceberg(table).update_schema() as update:
        update.add_column("note", StringType())
        update.move_first("name")
    land(table, [{"id": 2, "name": "Bob", "note": "new"}], 1)
    assert (read_column(table, "name"), read_column(table, "note")) == (["Ada", "Bob"], [None, "new"])
    with load_iceberg(table).update_schema() as update:
        update.rename_column("name", "label")
    with pytest.raises(TableMismatchError, match="renamed column 'name' to 'label': rename it back"):
        land(table, [{"id": 3}], 2)
