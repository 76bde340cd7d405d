"""Tests of the check that an object store supports conditional writes, before the first write to a table root."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyarrow import fs

from chronik.pipeline.tables import conditional_writes
from chronik.pipeline.tables.catalog import open_or_create_table
from chronik.pipeline.tables.conditional_writes import PROBE_PREFIX, require_conditional_writes
from chronik.pipeline.tables.storage import TableStorage
from chronik.pipeline.tables.storage_errors import TableStorageAccessError, TableStorageError
from tests.pipeline.fake_s3 import FakeS3, run_fake_s3
from tests.pipeline.seaweedfs import S3Server
from tests.pipeline.table_fixtures import SPEC

pytestmark = pytest.mark.xdist_group("spark")

ROOT = "s3://lake/tables"


@pytest.fixture
def fake_s3(without_aws_settings: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    monkeypatch.setattr(conditional_writes, "_checked_roots", set())
    with run_fake_s3() as store:
        yield store


def test_store_that_rejects_second_write_is_checked_once(fake_s3: FakeS3) -> None:
    for _ in range(2):
        require_conditional_writes(ROOT, fake_s3.options)
    assert [method for method, _, _ in fake_s3.requests] == ["PUT", "PUT", "POST"], "two writes and a deletion"
    assert fake_s3.objects == {}, "the probe object is deleted"


def test_store_that_ignores_condition_is_rejected_before_table_is_created(fake_s3: FakeS3) -> None:
    fake_s3.ignores_conditions = True
    for _ in range(2):
        with pytest.raises(TableStorageAccessError) as error:
            open_or_create_table(f"{ROOT}/orders", SPEC, fake_s3.options)
    assert str(error.value) == (
        "s3://lake/tables: the store does not support conditional writes: it overwrote an object despite"
        " If-None-Match; concurrent pipelines would lose rows: use a store that supports PUT with If-None-Match"
    )
    assert fake_s3.objects == {}, "nothing is written"


def test_disabled_conditional_writes_are_rejected(fake_s3: FakeS3) -> None:
    with pytest.raises(TableStorageAccessError, match="remove the storage option aws_conditional_put"):
        require_conditional_writes(ROOT, fake_s3.options | {"aws_conditional_put": "disabled"})


def test_store_without_conditional_writes_is_rejected(fake_s3: FakeS3) -> None:
    fake_s3.error = 501, "<Error><Code>NotImplemented</Code></Error>"
    with pytest.raises(TableStorageAccessError, match="the store does not support conditional writes: it rejects them"):
        require_conditional_writes(ROOT, fake_s3.options)


def test_unreachable_store_is_reported_in_one_line(fake_s3: FakeS3) -> None:
    with pytest.raises(TableStorageError) as error:
        require_conditional_writes(ROOT, fake_s3.options | {"aws_endpoint_url": "http://127.0.0.1:1"})
    assert str(error.value) == (
        "s3://lake: cannot connect to http://127.0.0.1:1: Connection refused: check AWS_ENDPOINT_URL or"
        " --storage-option aws_endpoint_url=…"
    )


def test_local_root_is_not_checked(fake_s3: FakeS3) -> None:
    require_conditional_writes("/tables", fake_s3.options)
    assert fake_s3.requests == []


def test_seaweedfs_is_accepted_and_left_clean(
    s3_server: S3Server, s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditional_writes, "_checked_roots", set())
    require_conditional_writes(s3_root, s3_server.options)
    storage = TableStorage(s3_root, s3_server.options)
    listed = storage.filesystem.get_file_info(fs.FileSelector("", allow_not_found=True))
    assert [info.path for info in listed if info.path.startswith(PROBE_PREFIX)] == []
