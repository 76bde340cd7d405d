"""A Versity S3 Gateway, a second implementation of S3, for long tests of tables in object stores.

`tools/clients/setup versitygw` builds it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from chronik.pipeline.tables.unfinished_uploads import open_client
from chronik.testing.ports import HOST, ReservedPorts
from chronik.testing.seaweedfs import ACCESS_KEY_ID, BUCKET, SECRET_ACCESS_KEY, S3Server

PROGRAM = Path(__file__).parents[2] / ".tools" / "go" / "versitygw"
START_SECONDS_MAX = 60.0
POLL_SECONDS = 0.1


class VersityGateway:
    """A gateway process with its objects in a directory, which can be killed and started again."""

    def __init__(self, directory: Path) -> None:
        """Prepare a gateway; skip the test if it is not installed."""
        if not PROGRAM.exists():
            pytest.skip("versitygw is not installed: run tools/clients/setup versitygw")
        self._directory = directory
        for name in ("objects", "metadata"):
            (directory / name).mkdir(parents=True)
        reserved = ReservedPorts(1)
        (port,) = reserved.ports
        reserved.release()
        self.server = S3Server(f"http://{HOST}:{port}", has_reader=False)
        self._command = [str(PROGRAM), "--port", f"{HOST}:{port}", "--region", "us-east-1"]
        # The gateway's own metadata are in a directory, because the file system may have no extended attributes.
        self._command += ["posix", "--sidecar", str(directory / "metadata"), str(directory / "objects")]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, wait until it responds, and create the bucket if it does not exist."""
        keys = {"ROOT_ACCESS_KEY": ACCESS_KEY_ID, "ROOT_SECRET_KEY": SECRET_ACCESS_KEY}
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, env=os.environ | keys, stdout=log, stderr=log)
        client = open_client(self.server.options)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            assert self._process.poll() is None, (self._directory / "log").read_text()
            try:
                if BUCKET not in [each["Name"] for each in client.list_buckets()["Buckets"]]:
                    client.create_bucket(Bucket=BUCKET)
                return
            except (BotoCoreError, ClientError):
                assert time.monotonic() < deadline, (self._directory / "log").read_text()
                time.sleep(POLL_SECONDS)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def run_versity_gateway(directory: Path) -> Iterator[S3Server]:
    """Run a gateway with its objects in the directory; skip the test if it is not installed."""
    gateway = VersityGateway(directory)
    try:
        gateway.start()
        yield gateway.server
    finally:
        gateway.kill()
