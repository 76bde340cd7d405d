"""Frameworks with transactional writes (Flink, Kafka Connect) as processes, installed by `tools/clients/setup`."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from chronik.testing.ports import HOST, ReservedPorts

from .client_catalog import JVM_OPTIONS, TOOLS

RUN_SECONDS_MAX = 180.0
"""Generous, for a machine with other load."""

POLL_SECONDS = 0.2
REQUEST_SECONDS_MAX = 30.0

# Flink uses reflection on classes of the JDK.
OPENED_PACKAGES = ("java.util", "java.lang", "java.time", "java.lang.reflect", "java.text", "java.util.concurrent")


def require_jars(name: str, folder: Path) -> Path:
    """Return the directory of the framework's jars, or skip the test if they are not installed."""
    reason_file = TOOLS / "missing" / name
    if reason_file.exists():
        pytest.skip(f"{name}: {reason_file.read_text().strip()}")
    if not folder.exists():
        pytest.skip(f"{name}: not installed; run tools/clients/setup {name}")
    return folder


def run_flink(*arguments: str) -> None:
    """Run the Flink job and wait until it succeeds."""
    library = require_jars("flink", TOOLS / "flink" / "lib")
    add_opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED_PACKAGES]
    command = ["java", *JVM_OPTIONS, "-Xmx512m", *add_opens, "-cp", f"{library}/*", "chronik.flink.Numbers", *arguments]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)
    assert completed.returncode == 0, completed.stderr[-3000:]


class ConnectWorker:
    """A Kafka Connect worker with exactly-once sources, which can be killed and restarted."""

    def __init__(self, bootstrap: str, group: str, folder: Path) -> None:
        self._library = require_jars("connect", TOOLS / "jars" / "connect")
        self._reserved = ReservedPorts(1)
        self._url = f"http://{HOST}:{self._reserved.ports[0]}"
        self._settings = folder / "worker.properties"
        self._log_path = folder / "connect.log"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "listeners": self._url,
            "exactly.once.source.support": "enabled",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "plugin.discovery": "hybrid_warn",
            # Short, because tests wait for the session of a killed worker to expire.
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            "scheduled.rebalance.max.delay.ms": 0,
        }
        for what in ("config", "offset", "status"):
            settings |= {f"{what}.storage.topic": f"{group}-{what}", f"{what}.storage.replication.factor": 1}
        settings |= {"offset.storage.partitions": 1, "status.storage.partitions": 1}
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ConnectWorker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._reserved.release()

    def start(self) -> None:
        """Start the worker and wait until its REST API responds."""
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        command = ["java", *JVM_OPTIONS, "-Xmx512m", "-cp", f"{self._library}/*", main, str(self._settings)]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait_until(lambda: self._request("GET", "/") is not None, "response of the REST API")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def configure(self, connector: str, config: dict[str, str]) -> None:
        """Configure a connector and wait until its task runs."""
        self._wait_until(
            lambda: self._request("PUT", f"/connectors/{connector}/config", config) is not None, "connector"
        )
        self._wait_until(lambda: self._states(connector) == ["RUNNING"], "running task")

    def _states(self, connector: str) -> list[str]:
        status = self._request("GET", f"/connectors/{connector}/status")
        return [] if status is None else [task["state"] for task in status["tasks"]]

    def _request(self, method: str, path: str, body: dict[str, str] | None = None) -> Any:
        """Send a REST request and return the JSON response, or None while it fails (such as during a rebalance)."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_SECONDS_MAX) as response:
                return json.load(response)
        except OSError:  # includes HTTPError
            return None

    def _wait_until(self, state: Any, what: str) -> None:
        deadline = time.monotonic() + RUN_SECONDS_MAX
        while not state():
            assert self._process is not None
            has_exited = self._process.poll() is not None
            if has_exited or time.monotonic() > deadline:
                raise AssertionError(f"no {what}: {self._log_path.read_text(errors='replace')[-3000:]}")
            time.sleep(POLL_SECONDS)
