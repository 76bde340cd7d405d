"""Rebuilds of Iceberg tables: other engines read the rebuilt rows by field id, and a killed rebuild changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from chronik.errors import ConfigError
from chronik.pipeline import failpoints
from chronik.pipeline.landing.settings import TableSettings
from chronik.pipeline.maintenance.rebuild import RebuildResult, RebuildSource, rebuild_table
from chronik.pipeline.tables.iceberg.table import IcebergTopicTable
from chronik.pipeline.tables.layout import TableKind
from chronik.pipeline.tables.partitioning import parse_partitioning
from chronik.pipeline.tables.topic_table import TableFormat
from chronik.pipeline.tables.values.table_schema import parse_schema_text
from chronik.testing import Broker
from tests.pipeline.landing.landed_topic import LandedTopic, open_landed_topic
from tests.pipeline.maintenance.test_rebuild_races import run_after
from tests.pipeline.tables.iceberg.iceberg_tables import load_iceberg
from tests.run_size import IS_LONG_RUN

RUN_SECONDS_MAX = 300
SOURCES = list(RebuildSource)


@pytest.fixture
def landed(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> Iterator[LandedTopic]:
    with open_landed_topic(chronik_broker, chronik_topic, tmp_path, TableFormat.ICEBERG) as landed:
        yield landed


def rebuild(landed: LandedTopic, schema: str | None, **options: Any) -> RebuildResult:
    parsed = None if schema is None else parse_schema_text(schema)
    return rebuild_table(landed.root, landed.topic.name, parsed, bootstrap=landed.topic.broker.bootstrap, **options)


def load(landed: LandedTopic) -> Any:
    """Return the table as PyIceberg loads it."""
    table = landed.open()
    assert isinstance(table, IcebergTopicTable)
    return load_iceberg(table)


def read_column(landed: LandedTopic, name: str, **options: Any) -> list[Any]:
    """Return the values of a column in the order of the offsets, as PyIceberg reads them by the column's field id."""
    rows: list[Any] = load(landed).scan(**options).to_arrow().sort_by("_offset")[name].to_pylist()
    return rows


@pytest.mark.parametrize("source", SOURCES)
def test_earlier_snapshot_keeps_the_type_that_a_rebuild_changes(landed: LandedTopic, source: RebuildSource) -> None:
    landed.send(b'{"id": 1, "at": {"n": 1}}', b'{"id": 2, "at": {"n": 2}}')
    landed.land()
    before = load(landed).metadata.current_snapshot_id
    result = rebuild(landed, "id string, at struct<n: bigint>", source=source)
    assert (result.rows, result.version) == (2, load(landed).metadata.current_snapshot_id)
    landed.send(b'{"id": "3", "at": {"n": 3}}')
    landed.land()
    assert read_column(landed, "id") == [None, None, "3"]
    assert [row.get("_rescued") for row in landed.rows()] == ['{"id":1}', '{"id":2}', None]
    assert read_column(landed, "at") == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert read_column(landed, "id", snapshot_id=before) == [1, 2]


def test_field_that_lands_during_a_rebuild_gets_its_column(landed: LandedTopic) -> None:
    landed.send(b'{"id": 1, "at": {"n": 1}}')
    landed.land()
    landed.send(b'{"id": 2, "at": {"n": 2, "m": "x"}, "later": true}')
    rebuild(landed, None, tasks=run_after("run_landing_task", landed.land))
    assert read_column(landed, "id") == [1, 2]
    assert read_column(landed, "at") == [{"n": 1, "m": None}, {"n": 2, "m": "x"}]
    assert read_column(landed, "later") == [None, True]


def test_schema_that_is_declared_during_a_rebuild_is_kept(landed: LandedTopic) -> None:
    landed.send(b'{"id": 1, "other": 5}')
    landed.land()
    schema = parse_schema_text("id bigint, other bigint, note string")
    rebuild(landed, None, tasks=run_after("run_landing_task", partial(landed.open().set_schema, schema)))
    descriptor = landed.open().descriptor()
    assert (descriptor.value_schema, descriptor.schema_version) == (schema, 1)
    assert landed.rows() == [{"id": 1, "other": 5}]
    assert read_column(landed, "note") == [None]


def test_rebuild_whose_response_is_lost_is_committed_once(landed: LandedTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    landed.send(b'{"id": 1}', b'{"id": 2}')
    landed.land()
    commit, lost = SqlCatalog.commit_table, []

    def lose_response(self: SqlCatalog, table: Any, requirements: Any, updates: Any) -> Any:
        response = commit(self, table, requirements, updates)
        if any(type(update).__name__ == "AddSnapshotUpdate" for update in updates):
            lost.append(table.name())
            raise OSError("connection lost")
        return response

    monkeypatch.setattr(SqlCatalog, "commit_table", lose_response)
    assert rebuild(landed, "id double").rows == 2
    assert len(lost) == 1
    assert read_column(landed, "id") == [1.0, 2.0]
    assert len(load(landed).metadata.snapshots) == 2


def test_partition_column_keeps_its_type(landed: LandedTopic) -> None:
    landed.send(b'{"id": 1, "c": 5}')
    settings = TableSettings(TableKind.DECODED, parse_partitioning("c"))
    landed.land(table_settings=settings, schema=parse_schema_text("id bigint, c bigint"))
    with pytest.raises(ConfigError, match="partitioned by column 'c', which must keep its type int64"):
        rebuild(landed, "id bigint, c string")
    assert rebuild(landed, "id double, c bigint").rows == 1
    assert (read_column(landed, "id"), read_column(landed, "c")) == ([1.0], [5])


def run_rebuild(landed: LandedTopic, schema: str, failpoint: str) -> subprocess.CompletedProcess[str]:
    arguments = ["pipeline", "rebuild", landed.topic.name, "--table-root", landed.root, "--schema", schema]
    return subprocess.run(
        [sys.executable, "-P", "-m", "chronik", *arguments, "-b", landed.topic.broker.bootstrap],
        env=os.environ | {failpoints.ENVIRONMENT_VARIABLE: failpoint},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )


@pytest.mark.slow
def test_killed_rebuild_has_replaced_all_rows_or_none(landed: LandedTopic) -> None:
    landed.send(*(b'{"id": %d, "x": 1}' % number for number in range(20)))
    landed.land()
    points = failpoints.ICEBERG_FAILPOINTS[:3] if IS_LONG_RUN else failpoints.ICEBERG_FAILPOINTS[1:3]
    expected: list[Any] = list(range(20))
    for number, failpoint in enumerate(points):
        done = run_rebuild(landed, f"id double, column_{number} string", failpoint)
        assert done.returncode == failpoints.EXIT_CODE, done.stderr
        is_committed = failpoint == failpoints.ICEBERG_RESPONSE
        assert (f"column_{number}" in landed.open().descriptor().schema.names) == is_committed
        assert read_column(landed, "id") == expected
        landed.send(b'{"id": %d, "x": 1}' % len(expected))
        landed.land()
        expected.append(len(expected))
    assert rebuild(landed, "id bigint").rows == len(expected)
    assert read_column(landed, "id") == expected
