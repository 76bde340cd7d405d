"""A standalone Spark cluster for tests: one master and some workers, as processes from the pip package.

with SparkCluster(workers=2) as cluster:
    spark = session(cluster.url, **cluster.conf)
    cluster.workers[0].kill()
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from chronik.pipeline.spark.masters import LOOPBACK
from chronik.pipeline.spark.runtime import build_spark_environment
from chronik.testing.ports import ReservedPorts
from tests.jvm_options import spark_options

READY_SECONDS_MAX = 240.0
"""Maximum time for the cluster to start; 24 s on an idle machine."""

STOP_SECONDS_MAX = 20.0
POLL_SECONDS = 0.1
STATUS_SECONDS_MAX = 5.0
LOG_BYTES_SHOWN = 3000
DAEMON_MEMORY = "256m"

MASTER_CLASS = "org.apache.spark.deploy.master.Master"
WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"


class SparkDaemon:
    """A master or a worker. The executors that a worker starts belong to its process group."""

    def __init__(self, name: str, directory: Path, *arguments: str) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        variables = (
            os.environ
            | build_spark_environment("spark://")
            | {
                "SPARK_LOCAL_IP": LOOPBACK,
                "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
                "CHRONIK_SPARK_LOG": "warn",
            }
        )
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(Path(variables["SPARK_HOME"]) / "bin" / "spark-class"), *arguments],
                env=variables,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the daemon and its executors, like a machine failure."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(STOP_SECONDS_MAX)

    def log_tail(self) -> str:
        return self.log.read_bytes()[-LOG_BYTES_SHOWN:].decode(errors="replace")


class SparkCluster:
    """A standalone Spark cluster on this machine."""

    def __init__(self, workers: int = 2, *, cores: int = 1, memory: str = "1g") -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="chronik-spark-"))
        self._cores, self._memory = cores, memory
        self._reserved = ReservedPorts(2)
        self._port, self._http_port = self._reserved.ports
        self._count = workers
        self._worker_count = 0
        self._master: SparkDaemon | None = None
        self.workers: list[SparkDaemon] = []

    @property
    def url(self) -> str:
        return f"spark://{LOOPBACK}:{self._port}"

    @property
    def conf(self) -> dict[str, str]:
        """The configuration of sessions: loopback addresses, and executors small enough for two of them."""
        return {
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.cores": str(self._cores),
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": " ".join(spark_options()),
            "spark.ui.enabled": "false",
        }

    def __enter__(self) -> SparkCluster:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        ports = ("--port", str(self._port), "--webui-port", str(self._http_port))
        self._master = SparkDaemon("master", self._folder, MASTER_CLASS, "--host", LOOPBACK, *ports)
        self._wait(lambda: self.status() is not None, "the master responded")
        for _ in range(self._count):
            self.add_worker()
        self.wait_for_workers(self._count)

    def add_worker(self) -> SparkDaemon:
        size = ("--cores", str(self._cores), "--memory", self._memory)
        location = ("--host", LOOPBACK, "--webui-port", "0", "--work-dir", str(self._folder / "work"))
        self._worker_count += 1
        name = f"worker{self._worker_count}"
        worker = SparkDaemon(name, self._folder, WORKER_CLASS, *size, *location, self.url)
        self.workers.append(worker)
        return worker

    def replace_worker(self, index: int) -> SparkDaemon:
        """Kill a worker with its executors and start another one, without waiting for it."""
        self.workers.pop(index).kill()
        return self.add_worker()

    def status(self) -> dict[str, Any] | None:
        """Return the master's status, or None while it does not respond."""
        try:
            address = f"http://{LOOPBACK}:{self._http_port}/json/"
            with urllib.request.urlopen(address, timeout=STATUS_SECONDS_MAX) as response:
                found: dict[str, Any] = json.load(response)
                return found
        except (OSError, ValueError):
            return None

    def count_alive_workers(self) -> int:
        return sum(worker["state"] == "ALIVE" for worker in (self.status() or {"workers": []})["workers"])

    def wait_for_workers(self, count: int) -> None:
        self._wait(lambda: self.count_alive_workers() >= count, f"{count} workers registered")

    def close(self) -> None:
        for daemon in (*self.workers, *([self._master] if self._master else [])):
            daemon.kill()
        self._reserved.release()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait(self, done: Callable[[], bool], condition: str) -> None:
        deadline = time.monotonic() + READY_SECONDS_MAX
        daemons = [each for each in (self._master, *self.workers) if each is not None]
        while not done():
            for daemon in daemons:
                assert daemon.is_running, f"{daemon.name} exited before {condition}:\n{daemon.log_tail()}"
            assert time.monotonic() < deadline, f"timed out before {condition}\n{daemons[-1].log_tail()}"
            time.sleep(POLL_SECONDS)
