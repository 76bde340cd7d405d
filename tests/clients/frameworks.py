"""Frameworks that write by transactions, as `tools/clients/setup` fetches them, as processes."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from chronik.testing.ports import HOST, ReservedPorts

from .catalogue import JVM_OPTIONS, TOOLS

RUN_SECONDS_MAX = 180.0
"""For a machine that does much else."""

POLL_SECONDS = 0.2
ASK_SECONDS_MAX = 30.0

# Flink looks into classes of Java's own.
OPENED = ("java.util", "java.lang", "java.time", "java.lang.reflect", "java.text", "java.util.concurrent")


def require(name: str, folder: Path) -> Path:
    """The folder of its jars. Skips the test where they are missing."""
    told = TOOLS / "missing" / name
    if told.exists():
        pytest.skip(f"{name}: {told.read_text().strip()}")
    if not folder.exists():
        pytest.skip(f"{name}: not set up; run tools/clients/setup {name}")
    return folder


def run_flink(*arguments: str) -> None:
    """Returns when the job has ended well."""
    library = require("flink", TOOLS / "flink" / "lib")
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    command = ["java", *JVM_OPTIONS, "-Xmx512m", *opened, "-cp", f"{library}/*", "chronik.flink.Numbers", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


class Connect:
    """A worker of Kafka Connect with exactly-once sources. It may be killed and started again."""

    def __init__(self, bootstrap: str, group: str, folder: Path) -> None:
        self._library = require("connect", TOOLS / "jars" / "connect")
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
            # Short, for the sake of who waits for one that was killed.
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            "scheduled.rebalance.max.delay.ms": 0,
        }
        for what in ("config", "offset", "status"):
            settings |= {f"{what}.storage.topic": f"{group}-{what}", f"{what}.storage.replication.factor": 1}
        settings |= {"offset.storage.partitions": 1, "status.storage.partitions": 1}
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Connect:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._reserved.release()

    def start(self) -> None:
        """Returns when it answers."""
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        command = ["java", *JVM_OPTIONS, "-Xmx512m", "-cp", f"{self._library}/*", main, str(self._settings)]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._until(lambda: self._ask("GET", "/") is not None, "an answer")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def configure(self, connector: str, config: dict[str, str]) -> None:
        """Returns when its task runs."""
        self._until(lambda: self._ask("PUT", f"/connectors/{connector}/config", config) is not None, "the connector")
        self._until(lambda: self._states(connector) == ["RUNNING"], "the task")

    def _states(self, connector: str) -> list[str]:
        status = self._ask("GET", f"/connectors/{connector}/status")
        return [] if status is None else [task["state"] for task in status["tasks"]]

    def _ask(self, method: str, path: str, body: dict[str, str] | None = None) -> Any:
        """The answer; None while there is none, as when workers are about to find each other."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ASK_SECONDS_MAX) as answer:
                return json.load(answer)
        except OSError:  # an HTTPError is one
            return None

    def _until(self, state: Any, what: str) -> None:
        deadline = time.monotonic() + RUN_SECONDS_MAX
        while not state():
            assert self._process is not None
            has_ended = self._process.poll() is not None
            if has_ended or time.monotonic() > deadline:
                raise AssertionError(f"no {what}: {self._log_path.read_text(errors='replace')[-3000:]}")
            time.sleep(POLL_SECONDS)
