"""Tests of the ways in which delta-rs gets AWS credentials: profile files, commands, and web identity tokens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.pipeline.tables.catalog import list_table_names, open_table
from chronik.pipeline.tables.storage_errors import TableStorageError
from chronik.pipeline.tables.storage_options import resolve_storage_options
from chronik.pipeline.tables.topic_table import TableMissingError
from tests.pipeline.fake_s3 import FakeS3, run_fake_s3
from tests.pipeline.seaweedfs import ACCESS_KEY_ID, SECRET_ACCESS_KEY, S3Server

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def fake_s3(without_aws_settings: None) -> Iterator[FakeS3]:
    with run_fake_s3() as store:
        yield store


@pytest.fixture(autouse=True)
def _restored_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables after the test that the SDK needs and a table sets."""
    for name in ("AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ENDPOINT_URL_STS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def write_profile(lines: str, credentials: str = "") -> None:
    Path(os.environ["AWS_CONFIG_FILE"]).write_text(lines)
    Path(os.environ["AWS_SHARED_CREDENTIALS_FILE"]).write_text(credentials)


def test_profile_with_keys_and_endpoint_opens_store(
    s3_server: S3Server, s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_profile(
        f"[profile lake]\nregion = us-east-1\nendpoint_url = {s3_server.endpoint}\n",
        f"[lake]\naws_access_key_id = {ACCESS_KEY_ID}\naws_secret_access_key = {SECRET_ACCESS_KEY}\n",
    )
    monkeypatch.setenv("AWS_PROFILE", "lake")
    assert list_table_names(s3_root, {"allow_http": "true"}) == []
    with pytest.raises(TableMissingError):
        open_table(f"{s3_root}/orders", {"allow_http": "true"})


def test_profile_with_credential_process_opens_store(s3_server: S3Server, s3_root: str, tmp_path: Path) -> None:
    program = tmp_path / "credentials"
    program.write_text(
        '#!/bin/sh\necho \'{"Version": 1, "AccessKeyId": "chronik", "SecretAccessKey": "chronik-secret"}\'\n'
    )
    program.chmod(0o755)
    write_profile(f"[profile process]\ncredential_process = {program}\nendpoint_url = {s3_server.endpoint}\n")
    options = resolve_storage_options(s3_root, {"allow_http": "true", "aws_profile": "process"})
    assert "AWS_PROFILE" not in os.environ
    assert list_table_names(s3_root, options) == [], "as in a task, which gets the driver's options"


def test_web_identity_token_is_exchanged_for_credentials(
    fake_s3: FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("pod-token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/writer")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", fake_s3.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with pytest.raises(TableMissingError):
        open_table("s3://lake/tables/orders", {"aws_endpoint_url": fake_s3.endpoint, "allow_http": "true"})
    assert set(fake_s3.web_identity_tokens) == {"pod-token"}
    signed = [authorization for _, path, authorization in fake_s3.requests if path.startswith("lake")]
    assert signed
    assert all("Credential=from-token/" in authorization for authorization in signed)


def test_failing_credential_process_is_reported(s3_server: S3Server, s3_root: str) -> None:
    write_profile(f"[profile process]\ncredential_process = /bin/false\nendpoint_url = {s3_server.endpoint}\n")
    with pytest.raises(TableStorageError, match=r"^s3://lake: cannot load credentials: [^\n\x1b]+$"):
        list_table_names(s3_root, {"allow_http": "true", "aws_profile": "process"})
