"""Multipart uploads to an S3 store that were started and never completed, because their process was killed.

No listing of objects shows them, but the store keeps their parts, and may charge for them. Neither delta-rs nor pyarrow
lists uploads, so this module uses botocore.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from chronik.errors import ConfigError
from chronik.pipeline.tables.storage_errors import (
    TableStorageAccessError,
    build_storage_error,
    extract_bucket_uri,
)
from chronik.pipeline.tables.storage_options import (
    ACCESS_KEY_ID,
    CERTIFICATE_PATH,
    ENDPOINT_URL,
    PROFILE,
    REGION,
    SECRET_ACCESS_KEY,
    SESSION_TOKEN,
    SKIP_SIGNATURE,
    VIRTUAL_HOSTED_STYLE,
    is_true,
)
from chronik.wording import format_install_hint

PERMISSIONS: Final = ("s3:ListBucketMultipartUploads", "s3:AbortMultipartUpload")

REGION_DEFAULT: Final = "us-east-1"
CONNECT_SECONDS_MAX: Final = 10
READ_SECONDS_MAX: Final = 60
ATTEMPTS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A multipart upload that is neither completed nor aborted."""

    path: str
    """Path of the file relative to the location."""
    upload_id: str
    started_s: float
    """Time of its start, in seconds since the Unix epoch."""


def list_unfinished_uploads(uri: str, options: Mapping[str, str]) -> list[UnfinishedUpload]:
    """Return the uploads of files below an S3 location.

    Raises:
        ConfigError: botocore is not installed.
        TableStorageError: The store does not list them, or denies access.
    """
    bucket, prefix = _split(uri)
    found = []
    with _convert_errors(uri, options):
        client = open_client(options)
        for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix):
            found += [
                UnfinishedUpload(each["Key"].removeprefix(prefix), each["UploadId"], each["Initiated"].timestamp())
                for each in page.get("Uploads", ())
                # Some stores ignore the prefix.
                if each["Key"].startswith(prefix)
            ]
    return found


def abort_upload(uri: str, options: Mapping[str, str], upload: UnfinishedUpload) -> None:
    """Abort an upload, and delete its parts. An upload that was completed or aborted by now stays as it is.

    Raises:
        ConfigError: botocore is not installed.
        TableStorageError: The store denies access, or does not respond.
    """
    bucket, prefix = _split(uri)
    with _convert_errors(uri, options):
        client = open_client(options)
        with suppress(client.exceptions.NoSuchUpload):
            client.abort_multipart_upload(Bucket=bucket, Key=f"{prefix}{upload.path}", UploadId=upload.upload_id)


def _split(uri: str) -> tuple[str, str]:
    parts = urlsplit(uri)
    return parts.netloc, f"{parts.path.strip('/')}/"


@contextmanager
def _convert_errors(uri: str, options: Mapping[str, str]) -> Iterator[None]:
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        hint = format_install_hint("spark")
        raise ConfigError(f"{uri}: botocore, which lists unfinished uploads, is not installed: {hint}") from error
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        if isinstance(error, ClientError) and error.response.get("Error", {}).get("Code") == "AccessDenied":
            raise TableStorageAccessError(
                f"{extract_bucket_uri(uri)}: access denied: grant the access key {' and '.join(PERMISSIONS)}"
            ) from error
        raise build_storage_error(uri, error, options) from error


def open_client(options: Mapping[str, str]) -> Any:
    """Return an S3 client. Credentials that the options do not have come from the usual chain of the AWS SDKs."""
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.session import Session

    is_virtual = is_true(options.get(VIRTUAL_HOSTED_STYLE))
    style = "virtual" if is_virtual else "path" if ENDPOINT_URL in options else "auto"
    config = Config(
        connect_timeout=CONNECT_SECONDS_MAX,
        read_timeout=READ_SECONDS_MAX,
        retries={"total_max_attempts": ATTEMPTS_MAX, "mode": "standard"},
        s3={"addressing_style": style},
        **({"signature_version": UNSIGNED} if is_true(options.get(SKIP_SIGNATURE)) else {}),
    )
    return Session(profile=options.get(PROFILE) if ACCESS_KEY_ID not in options else None).create_client(
        "s3",
        region_name=options.get(REGION, REGION_DEFAULT),
        endpoint_url=options.get(ENDPOINT_URL),
        verify=options.get(CERTIFICATE_PATH),
        aws_access_key_id=options.get(ACCESS_KEY_ID),
        aws_secret_access_key=options.get(SECRET_ACCESS_KEY),
        aws_session_token=options.get(SESSION_TOKEN),
        config=config,
    )
