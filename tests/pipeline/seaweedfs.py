"""A SeaweedFS server, which implements S3, for tests of tables in object stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chronik.errors import ConfigError
from chronik.testing.seaweedfs import ACCESS_KEY_ID as ACCESS_KEY_ID
from chronik.testing.seaweedfs import BUCKET as BUCKET
from chronik.testing.seaweedfs import READER_KEY_ID as READER_KEY_ID
from chronik.testing.seaweedfs import READER_SECRET_KEY as READER_SECRET_KEY
from chronik.testing.seaweedfs import SECRET_ACCESS_KEY as SECRET_ACCESS_KEY
from chronik.testing.seaweedfs import TABLE_BUCKET as TABLE_BUCKET
from chronik.testing.seaweedfs import S3Server as S3Server
from chronik.testing.seaweedfs import SeaweedFS


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
