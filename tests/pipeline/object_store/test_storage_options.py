"""Tests of the storage options of S3 roots: given options, environment variables, and profile files."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from chronik.errors import ConfigError
from chronik.pipeline.tables import storage_options
from chronik.pipeline.tables.storage import TableStorage
from chronik.pipeline.tables.storage_errors import build_storage_error
from chronik.pipeline.tables.storage_options import ResolvedOptions, resolve_storage_options, to_delta_options

ROOT = "s3://lake/tables"

SERVICE_ACCOUNT = {"client_email": "", "private_key": "", "private_key_id": "", "gcs_base_url": "http://127.0.0.1:1",
                   "disable_oauth": True}  # fmt: skip

KEYS = {"aws_access_key_id": "id", "aws_secret_access_key": "secret"}
KEY_VARIABLES = {"AWS_ACCESS_KEY_ID": "env-id", "AWS_SECRET_ACCESS_KEY": "env-secret"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = default-id\naws_secret_access_key = default-secret\n"
        "[lake]\naws_access_key_id = lake-id\naws_secret_access_key = lake-secret\naws_session_token = lake-token\n"
    )
    (tmp_path / ".aws" / "config").write_text(
        "[default]\nregion = eu-west-1\n"
        "[profile lake]\nregion = eu-central-1\nendpoint_url = http://127.0.0.1:8333\n"
        "[profile role]\nrole_arn = arn:aws:iam::1:role/writer\nsource_profile = lake\nregion = us-west-2\n"
    )
    return tmp_path


def test_options_of_local_tables_are_unchanged() -> None:
    assert resolve_storage_options("/tables/orders", None, KEY_VARIABLES) == {}


def test_environment_variables_complete_given_options() -> None:
    environment = {"AWS_DEFAULT_REGION": "us-east-2", "AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "http://store"}
    resolved = resolve_storage_options(ROOT, {"AWS_ACCESS_KEY_ID": "id", "secret_access_key": "secret"}, environment)
    assert resolved == KEYS | {"aws_region": "eu-west-1", "aws_endpoint_url": "http://store"}


def test_given_options_take_precedence_over_environment() -> None:
    given = KEYS | {"region": "us-east-1", "endpoint": "http://given", "allow_http": "true"}
    environment = KEY_VARIABLES | {"AWS_SESSION_TOKEN": "env-token", "AWS_ENDPOINT_URL": "http://environment"}
    assert resolve_storage_options(ROOT, given, environment) == KEYS | {
        "aws_region": "us-east-1",
        "aws_endpoint_url": "http://given",
        "aws_allow_http": "true",
    }


def test_resolved_options_are_returned_unchanged(home: Path) -> None:
    for environment in ({"HOME": str(home), "AWS_PROFILE": "lake"}, {"HOME": str(home), "AWS_PROFILE": "role"}):
        resolved = resolve_storage_options(ROOT, None, environment)
        assert resolve_storage_options(ROOT, resolved, {"AWS_ENDPOINT_URL": "http://other"}) is resolved
        assert pickle.loads(pickle.dumps(resolved)) == resolved
        assert type(pickle.loads(pickle.dumps(resolved))) is ResolvedOptions


def test_credentials_of_environment_take_precedence_over_profile(home: Path) -> None:
    resolved = resolve_storage_options(ROOT, None, KEY_VARIABLES | {"HOME": str(home), "AWS_PROFILE": "lake"})
    assert resolved == {
        "aws_access_key_id": "env-id",
        "aws_secret_access_key": "env-secret",
        "aws_region": "eu-central-1",
        "aws_endpoint_url": "http://127.0.0.1:8333",
    }


@pytest.mark.parametrize("named_by", ["variable", "option"])
def test_profile_provides_credentials_region_and_endpoint(home: Path, named_by: str) -> None:
    environment = {"HOME": str(home)} | ({"AWS_PROFILE": "lake"} if named_by == "variable" else KEY_VARIABLES)
    resolved = resolve_storage_options(ROOT, {"aws_profile": "lake"} if named_by == "option" else None, environment)
    assert resolved == {
        "aws_access_key_id": "lake-id",
        "aws_secret_access_key": "lake-secret",
        "aws_session_token": "lake-token",
        "aws_region": "eu-central-1",
        "aws_endpoint_url": "http://127.0.0.1:8333",
    }


def test_default_profile_is_used_without_other_credentials(home: Path) -> None:
    resolved = resolve_storage_options(ROOT, None, {"HOME": str(home)})
    assert (resolved["aws_access_key_id"], resolved["aws_region"]) == ("default-id", "eu-west-1")


def test_credentials_that_expire_are_loaded_by_sdk(home: Path, tmp_path: Path) -> None:
    role = resolve_storage_options(ROOT, None, {"HOME": str(home), "AWS_PROFILE": "role"})
    assert role == {"aws_force_credential_load": "true", "aws_profile": "role", "aws_region": "us-west-2"}
    token = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_ROLE_ARN": "arn", "HOME": str(tmp_path / "nowhere")}
    assert resolve_storage_options(ROOT, None, token) == {
        "aws_force_credential_load": "true",
        "aws_web_identity_token_file": "/token",
        "aws_role_arn": "arn",
    }


def test_complete_options_still_get_endpoint_of_environment() -> None:
    given = KEYS | {"aws_region": "us-east-1"}
    resolved = resolve_storage_options(ROOT, given, {"AWS_ENDPOINT_URL": "http://store", "AWS_ALLOW_HTTP": "true"})
    assert resolved == given | {"aws_endpoint_url": "http://store", "aws_allow_http": "true"}


def test_profile_of_one_location_does_not_affect_others(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_options, "_replaced_variables", {})
    monkeypatch.setenv("HOME", str(home))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_PROFILE", "lake")
    to_delta_options(resolve_storage_options(ROOT, {"aws_profile": "role"}))
    assert os.environ["AWS_PROFILE"] == "role"
    assert resolve_storage_options("s3://other/tables")["aws_access_key_id"] == "lake-id"


def test_public_bucket_needs_no_credentials(tmp_path: Path) -> None:
    resolved = resolve_storage_options(ROOT, {"skip_signature": "true"}, {"HOME": str(tmp_path)})
    assert resolved == {"aws_skip_signature": "true"}


def test_undefined_profile_is_rejected(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"AWS profile other is not defined in .*config or .*credentials"):
        resolve_storage_options(ROOT, None, {"HOME": str(home), "AWS_PROFILE": "other"})


def test_invalid_profile_file_is_rejected(home: Path) -> None:
    (home / ".aws" / "config").write_text("region = eu-west-1\n")
    with pytest.raises(ConfigError, match="invalid AWS profile file"):
        resolve_storage_options(ROOT, None, {"HOME": str(home)})


def test_profile_of_identity_center_is_rejected(home: Path) -> None:
    (home / ".aws" / "config").write_text("[profile sso]\nsso_session = company  # comment\nregion = eu-west-1\n")
    with pytest.raises(ConfigError, match="AWS profiles of IAM Identity Center are not supported"):
        resolve_storage_options(ROOT, None, {"HOME": str(home), "AWS_PROFILE": "sso"})
    assert resolve_storage_options(ROOT, KEYS, {"HOME": str(home), "AWS_PROFILE": "sso"}) == KEYS | {
        "aws_region": "eu-west-1"
    }


def test_role_of_profile_takes_precedence_over_its_keys(home: Path) -> None:
    with (home / ".aws" / "credentials").open("a") as file:
        file.write("[role]\naws_access_key_id = role-id\naws_secret_access_key = role-secret\n")
    resolved = resolve_storage_options(ROOT, {"aws_profile": "role"}, {"HOME": str(home)})
    assert "aws_access_key_id" not in resolved
    assert resolved["aws_force_credential_load"] == "true"


def test_access_key_without_secret_is_rejected() -> None:
    with pytest.raises(ConfigError, match="give both storage options, aws_access_key_id and aws_secret_access_key"):
        resolve_storage_options(ROOT, {"aws_access_key_id": "id"}, KEY_VARIABLES)


def test_endpoint_without_scheme_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"invalid aws_endpoint_url=127.0.0.1:8333: expected http://HOST:PORT"):
        resolve_storage_options(ROOT, KEYS, {"AWS_ENDPOINT_URL": "127.0.0.1:8333"})


def test_missing_certificate_is_rejected_by_driver_and_ignored_by_task(tmp_path: Path) -> None:
    environment = {"AWS_CA_BUNDLE": str(tmp_path / "ca.pem")}
    with pytest.raises(ConfigError, match=r"certificate_path=.*ca.pem does not exist: correct it or AWS_CA_BUNDLE"):
        resolve_storage_options(ROOT, KEYS, environment)
    (tmp_path / "ca.pem").write_text("")
    resolved = resolve_storage_options(ROOT, KEYS, environment)
    assert to_delta_options(resolved) == KEYS | {"certificate_path": str(tmp_path / "ca.pem")}
    (tmp_path / "ca.pem").unlink()
    assert to_delta_options(resolved) == KEYS


def test_misspelled_option_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"unknown storage option aws_acces_key_id; did you mean aws_access_key_id\?"):
        resolve_storage_options(ROOT, {"aws_acces_key_id": "id"}, {})
    assert resolve_storage_options(ROOT, KEYS | {"aws_region": "x", "new_option": "1"}, {})["new_option"] == "1"


def test_google_cloud_storage_gets_options_from_environment() -> None:
    environment = {"GOOGLE_APPLICATION_CREDENTIALS": "/keys/lake.json"} | KEY_VARIABLES
    assert resolve_storage_options("gs://lake/tables", {"MAX_RETRIES": "3"}, environment) == {
        "google_application_credentials": "/keys/lake.json",
        "max_retries": "3",
    }


@pytest.mark.parametrize("root", ["abfss://tables@lake.dfs.core.windows.net", "az://tables/lake"])
def test_azure_gets_options_from_environment(root: str) -> None:
    environment = {"AZURE_STORAGE_ACCOUNT_NAME": "lake", "AZURE_STORAGE_ACCOUNT_KEY": "key"} | KEY_VARIABLES
    given = {"azure_storage_account_key": "given"}
    assert resolve_storage_options(root, given, environment) == {
        "azure_storage_account_name": "lake",
        "azure_storage_account_key": "given",
    }


@pytest.mark.parametrize(
    ("root", "options"),
    [
        ("gs://lake/tables", {"google_service_account_key": json.dumps(SERVICE_ACCOUNT)}),
        (
            "abfss://tables@lake.dfs.core.windows.net/lake",
            {"azure_storage_account_name": "lake", "azure_storage_account_key": "a2V5"},
        ),
    ],
)
def test_storage_opens_other_object_stores(root: str, options: dict[str, str]) -> None:
    storage = TableStorage(f"{root}/orders", options)
    assert storage.describe_path("part.parquet") == f"{root}/orders/part.parquet"


def test_errors_of_other_stores_contain_no_advice_for_aws() -> None:
    error = build_storage_error("gs://lake/tables", "Generic GCS error: HTTP status 403 Forbidden: AccessDenied")
    assert "AWS" not in str(error)
    assert str(error).startswith("gs://lake/tables: ")
    throttled = build_storage_error("gs://lake/tables", "Generic GCS error: HTTP status 429 Too Many Requests")
    assert str(throttled) == "gs://lake: the store limits the request rate: try again later"
