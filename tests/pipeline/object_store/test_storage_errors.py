"""Tests of the messages for failed requests to object stores: one line, with the cause and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from chronik.errors import ConfigError
from chronik.pipeline.tables.catalog import list_table_names, open_or_create_table, open_table
from chronik.pipeline.tables.conditional_writes import _checked_roots
from chronik.pipeline.tables.storage import TableStorage
from chronik.pipeline.tables.storage_errors import TableStorageAccessError, TableStorageError, build_storage_error
from tests.pipeline.fake_s3 import FakeS3, run_fake_s3, xml_error
from tests.pipeline.seaweedfs import READER_KEY_ID, READER_SECRET_KEY, S3Server
from tests.pipeline.table_fixtures import SPEC

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def fake_s3(without_aws_settings: None) -> Iterator[FakeS3]:
    with run_fake_s3() as store:
        yield store


def read_error_message(root: str, options: dict[str, str], *, is_fake: bool = False) -> str:
    """Return the message of the error with which a table is opened, which must equal that of a listing."""
    with pytest.raises(TableStorageError) as opened:
        open_table(f"{root}/orders", options)
    message = str(opened.value)
    if not is_fake:
        with pytest.raises(TableStorageError) as listed:
            list_table_names(root, options)
        assert message == str(listed.value)
    assert "\n" not in message
    assert "\x1b" not in message
    assert len(message) < 300
    return message


def test_missing_bucket_is_named(s3_server: S3Server, without_aws_settings: None) -> None:
    message = read_error_message("s3://nothing/tables", s3_server.options)
    assert message == (
        f"s3://nothing: the bucket does not exist at {s3_server.endpoint}: create it, or correct --table-root"
    )


def test_unknown_access_key_is_reported(s3_server: S3Server, s3_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = s3_server.options | {"aws_access_key_id": "unknown"}
    expected = (
        "s3://lake: the store does not know the access key ID: correct AWS_ACCESS_KEY_ID or --storage-option"
        " aws_access_key_id=…"
    )
    assert read_error_message(s3_root, options) == expected
    monkeypatch.setenv("TOKEN", "of another program")  # delta-rs sends it
    assert read_error_message(s3_root, options) == f"{expected}, or unset TOKEN, which is sent as the session token"


def test_wrong_secret_key_is_reported(s3_server: S3Server, s3_root: str) -> None:
    message = read_error_message(s3_root, s3_server.options | {"aws_secret_access_key": "wrong"})
    assert message == (
        "s3://lake: the secret access key does not belong to the access key ID: correct AWS_SECRET_ACCESS_KEY or"
        " --storage-option aws_secret_access_key=…"
    )


def test_missing_credentials_are_reported(s3_server: S3Server, s3_root: str) -> None:
    options = {name: value for name, value in s3_server.options.items() if "key" not in name}
    assert read_error_message(s3_root, options) == (
        "s3://lake: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or"
        " --storage-option aws_access_key_id=… and aws_secret_access_key=…"
    )


def test_unencrypted_endpoint_needs_option(s3_server: S3Server, s3_root: str) -> None:
    options = {name: value for name, value in s3_server.options.items() if name != "aws_allow_http"}
    assert read_error_message(s3_root, options) == (
        f"s3://lake: {s3_server.endpoint} is not encrypted: use https, or accept it with AWS_ALLOW_HTTP=true or"
        " --storage-option allow_http=true"
    )


def test_endpoint_without_tls_is_reported(s3_server: S3Server, s3_root: str) -> None:
    endpoint = s3_server.endpoint.replace("http://", "https://")
    message = read_error_message(s3_root, s3_server.options | {"aws_endpoint_url": endpoint, "max_retries": "0"})
    assert message == (
        f"s3://lake: {endpoint} does not support TLS: use http:// in AWS_ENDPOINT_URL, with AWS_ALLOW_HTTP=true"
    )


def test_unreachable_endpoint_is_reported_as_transient(s3_server: S3Server, s3_root: str) -> None:
    options = s3_server.options | {"aws_endpoint_url": "http://127.0.0.1:1", "max_retries": "0"}
    assert read_error_message(s3_root, options) == (
        "s3://lake: cannot connect to http://127.0.0.1:1: Connection refused: check AWS_ENDPOINT_URL or"
        " --storage-option aws_endpoint_url=…"
    )
    with pytest.raises(TableStorageError) as error:
        list_table_names(s3_root, options)
    assert not isinstance(error.value, TableStorageAccessError), "a driver retries"


def test_write_without_permission_is_reported(s3_server: S3Server, s3_root: str) -> None:
    open_or_create_table(f"{s3_root}/orders", SPEC, s3_server.options)
    options = s3_server.options | {
        "aws_access_key_id": READER_KEY_ID,
        "aws_secret_access_key": READER_SECRET_KEY,
    }
    table = open_table(f"{s3_root}/orders", options)
    denied = r"^s3://lake: access denied \((?:PUT|POST)\): grant the access key s3:PutObject, or use another one$"
    with pytest.raises(TableStorageAccessError, match=denied), table.storage.create("file") as file:
        file.write(b"content")
    _checked_roots.clear()
    with pytest.raises(TableStorageAccessError, match=denied):
        open_or_create_table(f"{s3_root}/payments", SPEC, options)


def test_wrong_region_is_reported(fake_s3: FakeS3) -> None:
    fake_s3.error = (
        400,
        xml_error("AuthorizationHeaderMalformed", "expecting 'eu-west-1'", "<Region>eu-west-1</Region>"),
    )
    assert read_error_message("s3://lake/tables", fake_s3.options, is_fake=True) == (
        "s3://lake: the bucket is in region eu-west-1: set AWS_REGION=eu-west-1 or --storage-option"
        " aws_region=eu-west-1"
    )


def test_redirect_without_location_is_reported_as_wrong_region(fake_s3: FakeS3) -> None:
    fake_s3.error = 301, xml_error("PermanentRedirect")
    assert read_error_message("s3://lake/tables", fake_s3.options, is_fake=True) == (
        "s3://lake: the bucket is in another region: set AWS_REGION=… or --storage-option aws_region=…"
    )


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (403, "AccessDenied", "access denied (GET): grant the access key s3:GetObject and s3:ListBucket"),
        (400, "ExpiredToken", "the session token has expired: renew AWS_SESSION_TOKEN"),
        (403, "RequestTimeTooSkewed", "the clock of this machine differs from the store's"),
        (503, "SlowDown", "the store limits the request rate: try again later"),
    ],
)
def test_error_codes_are_explained(fake_s3: FakeS3, status: int, code: str, expected: str) -> None:
    fake_s3.error = status, xml_error(code)
    assert read_error_message("s3://lake/tables", fake_s3.options, is_fake=True).startswith(f"s3://lake: {expected}")


@pytest.mark.parametrize(
    ("option", "expected"), [("aws_allow_http=maybe", "true or false"), ("max_retries=many", "an integer")]
)
def test_invalid_value_of_option_is_reported(without_aws_settings: None, option: str, expected: str) -> None:
    name, _, value = option.partition("=")
    options = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", name: value}
    message = read_error_message("s3://lake/tables", options)
    assert message == f"s3://lake: invalid storage option {option}: expected {expected}"


def test_unknown_error_is_shortened_to_one_line() -> None:
    arrow = "\n   \x1b[31m↳\x1b[0m "
    text = f"Kernel error -> Generic S3 error{arrow}strange{arrow}thing\n\nBacktrace:\n 0: main"
    assert str(build_storage_error("s3://lake/tables", text)) == "s3://lake/tables: strange: thing"


def test_missing_file_is_a_file_not_found_error(s3_server: S3Server, s3_root: str) -> None:
    storage = TableStorage(f"{s3_root}/orders", s3_server.options)
    with pytest.raises(FileNotFoundError) as error:
        storage.filesystem.open_input_file("part-1.parquet")
    assert re.fullmatch(r"s3://lake/\w+/orders: .*not found[^\n\x1b]*", str(error.value))


@pytest.mark.parametrize(
    ("root", "message"),
    [
        ("s3://", ": no bucket: write s3://BUCKET/PREFIX"),
        ("s3://lake/a%20b", "Delta readers do not support % in the name of a table root"),
        ("s3:/lake/tables", "write s3://BUCKET/PREFIX, as text and not as a pathlib.Path"),
        ("s4://lake/tables", "unsupported scheme: use a directory or s3://BUCKET/PREFIX"),
    ],
)
def test_invalid_root_is_rejected(root: str, message: str, without_aws_settings: None) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        open_table(f"{root}/orders", {})
    with pytest.raises(ConfigError, match=re.escape(message)):
        list_table_names(root, {})
