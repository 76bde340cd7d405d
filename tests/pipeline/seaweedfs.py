"""A SeaweedFS server, which implements S3, for tests of tables in object stores."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from chronik.errors import ConfigError
from chronik.testing.seaweedfs import ACCESS_KEY_ID as ACCESS_KEY_ID
from chronik.testing.seaweedfs import BUCKET as BUCKET
from chronik.testing.seaweedfs import READER_KEY_ID as READER_KEY_ID
from chronik.testing.seaweedfs import READER_SECRET_KEY as READER_SECRET_KEY
from chronik.testing.seaweedfs import SECRET_ACCESS_KEY as SECRET_ACCESS_KEY
from chronik.testing.seaweedfs import TABLE_BUCKET as TABLE_BUCKET
from chronik.testing.seaweedfs import S3Server as S3Server
from chronik.testing.seaweedfs import SeaweedFS


def request_session(server: S3Server) -> dict[str, str]:
    """Return storage options with temporary credentials of the server, which include a session token."""
    body = "Action=AssumeRole&Version=2011-06-15&RoleSessionName=canary"
    request = AWSRequest("POST", server.endpoint, {"Content-Type": "application/x-www-form-urlencoded"}, body)
    SigV4Auth(Credentials(ACCESS_KEY_ID, SECRET_ACCESS_KEY), "sts", server.options["aws_region"]).add_auth(request)
    posted = urllib.request.Request(server.endpoint, body.encode(), dict(request.headers.items()))
    with urllib.request.urlopen(posted, timeout=30) as response:
        answer = response.read().decode()
    names = {"AccessKeyId": "access_key_id", "SecretAccessKey": "secret_access_key", "SessionToken": "session_token"}
    found = {name: re.search(f"<{tag}>([^<]+)</{tag}>", answer) for tag, name in names.items()}
    return server.options | {f"aws_{name}": match[1] for name, match in found.items() if match is not None}


def prepare_seaweedfs(directory: Path) -> SeaweedFS:
    """Prepare a server with its data in the directory; skip the test if SeaweedFS is not installed."""
    try:
        return SeaweedFS(directory)
    except ConfigError as error:
        pytest.skip(str(error))


@contextmanager
def run_seaweedfs(directory: Path) -> Iterator[S3Server]:
    """Run a server with its data in the directory; skip the test if SeaweedFS is not installed."""
    seaweedfs = prepare_seaweedfs(directory)
    try:
        seaweedfs.start()
        yield seaweedfs.server
    finally:
        seaweedfs.kill()  # its data is not used again
