"""Multipart uploads that a killed process has left unfinished are aborted by a vacuum, once they are old enough."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace

import pytest

from chronik.pipeline.table_maintenance.merges import vacuum_table
from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.commit_plan import PartitionRange
from chronik.pipeline.tables.storage import TableStorage
from chronik.pipeline.tables.storage_options import ICEBERG_CATALOG
from chronik.pipeline.tables.table_files import ORPHAN_HOURS_MIN
from chronik.pipeline.tables.topic_table import TableFormat, TopicTable
from chronik.pipeline.tables.unfinished_uploads import list_unfinished_uploads
from tests.pipeline.seaweedfs import (
    ACCESS_KEY_ID,
    BUCKET,
    READER_KEY_ID,
    READER_SECRET_KEY,
    SECRET_ACCESS_KEY,
    TABLE_BUCKET,
    S3Server,
)
from tests.pipeline.table_fixtures import SPEC, expected_offsets
from tests.pipeline.tables.iceberg.iceberg_tables import append, read_positions

ROWS = PartitionRange(0, 0, 10)

UPLOAD_AND_DIE = """
import json, os, signal, sys
from chronik.pipeline.tables.storage import TableStorage
uri, path, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
stream = TableStorage(uri, options).create(path)
for _ in range(3):
    stream.write(os.urandom(6 << 20))
os.kill(os.getpid(), signal.SIGKILL)
"""
"""A program that is killed while it writes a data file. The parts of its upload have 5 MiB."""


@pytest.fixture
def table(request: pytest.FixtureRequest, s3_server: S3Server, without_aws_settings: None) -> TopicTable:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    spec = replace(SPEC, topic=topic, table_format=request.param)
    options, root = s3_server.options, f"s3://{BUCKET}/{uuid.uuid4().hex}"
    if request.param is TableFormat.ICEBERG:
        if not s3_server.catalog:
            pytest.skip("the S3 server has no Iceberg catalog")
        properties = f"warehouse=s3://{TABLE_BUCKET}&credential={ACCESS_KEY_ID}:{SECRET_ACCESS_KEY}"
        options, root = options | {ICEBERG_CATALOG: f"{s3_server.catalog}?{properties}"}, f"s3://{TABLE_BUCKET}/chronik"
    table = open_or_create_table(f"{root}/{topic}", spec, options)
    append(table, ROWS)
    return table


def leave_upload(table: TopicTable, options: Mapping[str, str], path: str) -> None:
    program = [sys.executable, "-P", "-c", UPLOAD_AND_DIE, table.descriptor().uri, path, json.dumps(dict(options))]
    assert subprocess.run(program, timeout=120, check=False).returncode == -9


@pytest.mark.slow
@pytest.mark.parametrize("table", list(TableFormat), indirect=True)
def test_vacuum_aborts_old_uploads_of_a_killed_process(
    table: TopicTable, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    location = table.descriptor().uri
    leave_upload(table, s3_server.options, "_date=2026-11-19/part-1.parquet")
    (left,) = list_unfinished_uploads(location, s3_server.options)
    assert left.path == "_date=2026-11-19/part-1.parquet"
    assert abs(left.started_s - time.time()) < 3600
    assert vacuum_table(table) == [], "a running pipeline may yet complete the upload"
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + (ORPHAN_HOURS_MIN - 1) * 3600)
    assert table.abort_uploads(ORPHAN_HOURS_MIN) == []
    monkeypatch.setattr(time, "time", lambda: now() + (ORPHAN_HOURS_MIN + 1) * 3600)
    assert len(table.abort_uploads(ORPHAN_HOURS_MIN, dry_run=True)) == 1
    monkeypatch.undo()
    with caplog.at_level("INFO", "chronik.pipeline"):
        removed = vacuum_table(table, keep_hours=0, pipeline_stopped=True)
    assert [each for each in removed if each.endswith(f"{left.path} (unfinished upload)")] == removed[-1:]
    assert f"table {table.uri}: unfinished uploads aborted: count=1" in caplog.text
    assert list_unfinished_uploads(location, s3_server.options) == []
    assert read_positions(table.files()) == expected_offsets(ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("table", [TableFormat.DELTA], indirect=True)
def test_vacuum_without_permission_leaves_uploads_with_a_warning(
    table: TopicTable, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if not s3_server.has_reader:
        pytest.skip("the S3 server has no second user")
    leave_upload(table, s3_server.options, "part-1.parquet")
    reader = {"aws_access_key_id": READER_KEY_ID, "aws_secret_access_key": READER_SECRET_KEY}
    storage = TableStorage(table.uri, s3_server.options | reader)
    monkeypatch.setattr(type(table), "storage", property(lambda self: storage))
    assert vacuum_table(table, keep_hours=0, pipeline_stopped=True) == []
    problem = f"s3://{BUCKET}: access denied: grant the access key s3:ListBucketMultipartUploads and s3:Abort"
    assert f"table {table.uri}: unfinished uploads not aborted: {problem}" in caplog.text
    assert len(list_unfinished_uploads(table.uri, s3_server.options)) == 1
