"""`chronik pipeline run --table-format iceberg`: each record lands exactly once, also after a kill at any point.

The points are those of the landing and those inside the commit to the catalog, with and without a lost response. The
catalogs are a SQL catalog on a local disk, and the REST catalog of SeaweedFS with tables on S3.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from chronik.client.records import OutgoingRecord
from chronik.pipeline import failpoints
from chronik.pipeline.tables.catalog import list_table_names, open_table
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.storage_options import ICEBERG_CATALOG
from chronik.pipeline.tables.table_files import TableFiles, scan
from chronik.pipeline.tables.topic_table import TableFormat
from chronik.testing import Broker
from tests.pipeline.s3_fault_proxy import Fault, FaultKind, FaultProxyProcess, Operation, run_s3_fault_proxy
from tests.pipeline.seaweedfs import ACCESS_KEY_ID, SECRET_ACCESS_KEY, TABLE_BUCKET, S3Server
from tests.pipeline.table_fixtures import JournalledTopic, RecordPosition
from tests.run_size import IS_LONG_RUN, sized

RECORDS = sized(1_500, 100_000)
PARTITIONS = 2
RUN_SECONDS_MAX = 300

DATA = 2
"""The hit of a failpoint of commits that belongs to the rows. The first one belongs to the dead-letter records."""


class Kill(NamedTuple):
    """The point at which a run is killed, and whether the response to its commit of rows is lost before."""

    point: str
    hit: int = 1
    loses_response: bool = False


COMMIT_KILLS = (
    Kill(failpoints.ICEBERG_MANIFESTS, DATA),
    Kill(failpoints.ICEBERG_RESPONSE),
    Kill(failpoints.ICEBERG_RESPONSE, DATA, loses_response=True),
    Kill(failpoints.ICEBERG_RELOAD, loses_response=True),
)
SQL_KILLS = (
    Kill(failpoints.SCHEMA_CHANGE),
    Kill(failpoints.BEFORE_FILES),
    Kill(failpoints.AFTER_FILES),
    Kill(failpoints.ICEBERG_PLAN, DATA),
    Kill(failpoints.ICEBERG_MANIFESTS),
    *COMMIT_KILLS,
    Kill(failpoints.DATA_COMMIT),
)
REST_KILLS = SQL_KILLS if IS_LONG_RUN else COMMIT_KILLS

LOSE_RESPONSE = """
from pyiceberg.catalog.sql import SqlCatalog
from chronik.__main__ import run
commit = SqlCatalog.commit_table
def commit_and_fail(self, table, requirements, updates):
    response = commit(self, table, requirements, updates)
    if table.name()[-1] == IDENTIFIER and any(type(each).__name__ == "AddSnapshotUpdate" for each in updates):
        SqlCatalog.commit_table = commit
        raise OSError("the response was lost")
    return response
SqlCatalog.commit_table = commit_and_fail
run()
"""
"""A program that loses the response of a SQL catalog to a commit of rows, as if the database's server had failed."""


@dataclass(frozen=True)
class Lakehouse:
    """A table root with a catalog, which can lose the response to a commit of rows."""

    root: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Storage options of the test itself, which bypass the proxy."""
    driver_options: Mapping[str, str] = field(default_factory=dict)
    proxy: FaultProxyProcess | None = None

    def build_program(self, topic: str, kill: Kill | None) -> list[str]:
        """Return the arguments of Python for a run, and prepare the loss of a response."""
        loses_response = kill is not None and kill.loses_response
        if self.proxy is None:
            return ["-c", f"IDENTIFIER = {topic!r}\n{LOSE_RESPONSE}"] if loses_response else ["-m", "chronik"]
        # The first commit of a run adds the column that is new in its records; the second one adds the rows.
        fault = Fault(FaultKind.LOST_RESPONSE, [Operation.OTHER], f"tables/{topic}$", count=1, skip=1)
        self.proxy.inject(*[fault] * loses_response)
        return ["-m", "chronik"]


@pytest.fixture
def rest_lakehouse(s3_server: S3Server, without_aws_settings: None) -> Iterator[Lakehouse]:
    properties = f"warehouse=s3://{TABLE_BUCKET}&credential={ACCESS_KEY_ID}:{SECRET_ACCESS_KEY}"
    with run_s3_fault_proxy(s3_server.catalog) as proxy:
        direct, proxied = (
            s3_server.options | {ICEBERG_CATALOG: f"{endpoint}?{properties}"}
            for endpoint in (s3_server.catalog, proxy.endpoint)
        )
        yield Lakehouse(f"s3://{TABLE_BUCKET}/chronik", direct, proxied, proxy)


def run_pipeline(
    broker: Broker, lakehouse: Lakehouse, topic: str, kill: Kill | None, number: int
) -> subprocess.CompletedProcess[str]:
    program = lakehouse.build_program(topic, kill)
    arguments = ["pipeline", "run", "--once", "-b", broker.bootstrap, "--table-root", lakehouse.root]
    arguments += ["--topics", topic, "--table-format", "iceberg", "--format", "json", "--group", f"run-{number}"]
    for name, value in lakehouse.driver_options.items():
        arguments += ["--catalog", value] if name == ICEBERG_CATALOG else ["--storage-option", f"{name}={value}"]
    return subprocess.run(
        [sys.executable, "-P", *program, *arguments],
        env=os.environ | {failpoints.ENVIRONMENT_VARIABLE: "" if kill is None else f"{kill.point}:{kill.hit}"},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )


def build_records(run_number: int, size: int) -> list[OutgoingRecord]:
    """Build JSON records with a field that is new in each run, and some invalid values."""
    return [
        OutgoingRecord(
            b"not JSON %d" % number
            if number % 97 == 0
            else json.dumps({"n": number, f"new_in_{run_number}": number / 2, "tags": [{"a": "b"}]}).encode(),
            partition=number % PARTITIONS,
        )
        for number in range(size)
    ]


def read_positions(files: TableFiles) -> list[RecordPosition]:
    return [
        position
        for batch in scan(files, ["_partition", "_offset", "_value_crc32c"])
        for position in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]


def check(lakehouse: Lakehouse, topic: JournalledTopic) -> int:
    """Check that the tables have each record below their next offsets once, and return the number of records."""
    root, options = lakehouse.root, lakehouse.options
    if topic.name not in list_table_names(root, options):
        return 0
    table = open_table(table_uri(root, topic.name), options)
    assert table.spec.table_format is TableFormat.ICEBERG
    ends = table.next_offsets()
    expected = sorted(each[:2] for each in topic.acknowledged if each[1] < ends.get(each[0], 0))
    good = read_positions(table.files())
    dead = read_positions(open_table(build_dead_letters_uri(root, topic.name), options).files())
    assert sorted(each[:2] for each in [*good, *dead] if each[1] < ends.get(each[0], 0)) == expected
    assert set(good) | set(dead) <= set(topic.acknowledged)
    return len(expected)


def check_landing(broker: Broker, topic_name: str, lakehouse: Lakehouse, kills: Sequence[Kill]) -> None:
    """Land records in runs that are killed, and in one that is not, and check the tables after each run."""
    name = topic_name.replace("-", "_").lower()
    broker.create_topic(name, PARTITIONS)
    topic = JournalledTopic(broker, name)
    landed = 0
    for number, kill in enumerate([*kills, None]):
        topic.send(build_records(number, RECORDS // (len(kills) + 1)))
        done = run_pipeline(broker, lakehouse, name, kill, number)
        assert done.returncode == (0 if kill is None else failpoints.EXIT_CODE), (kill, done.stderr)
        if kill is not None and lakehouse.proxy is not None:
            assert lakehouse.proxy.read_report().injected.total() == kill.loses_response, kill
        before, landed = landed, check(lakehouse, topic)
        # The catalog has the rows of a commit whose response was lost.
        has_rows = kill is None or kill.loses_response or kill.point == failpoints.DATA_COMMIT
        assert (landed > before) == has_rows, kill
    assert landed == len(topic.acknowledged)
    columns = open_table(table_uri(lakehouse.root, name), lakehouse.options).descriptor().schema.names
    assert {f"new_in_{number}" for number in range(len(kills) + 1)} <= set(columns)


@pytest.mark.slow
def test_each_record_lands_once_despite_kills_with_sql_catalog(
    chronik_broker: Broker, chronik_topic: str, tmp_path: Path
) -> None:
    check_landing(chronik_broker, chronik_topic, Lakehouse(str(tmp_path)), SQL_KILLS)


@pytest.mark.slow
def test_each_record_lands_once_despite_kills_with_rest_catalog(
    chronik_broker: Broker, chronik_topic: str, rest_lakehouse: Lakehouse
) -> None:
    check_landing(chronik_broker, chronik_topic, rest_lakehouse, REST_KILLS)
