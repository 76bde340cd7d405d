"""A broker of Apache Kafka's to test against: one node, KRaft, from the jars in Maven Central.

    with ApacheKafka(folder) as kafka:
        Producer({"bootstrap.servers": kafka.bootstrap})
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from types import TracebackType

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import Cluster
from chronik.client.connection import Connection
from chronik.client.errors import ClientError
from chronik.config import Address
from chronik.pipeline.java import find_java
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse
from chronik.testing.ports import HOST, ReservedPorts
from tests.pipeline.jars import APACHE_KAFKA, jars_of

START_SECONDS_MAX = 120.0
"""For a machine that does much else."""

STOP_SECONDS_MAX = 20.0
ASK_SECONDS_MAX = 5.0
POLL_SECONDS = 0.1
LOG_BYTES_SHOWN = 3000
NODE_ID = 1

# Small and quick to start rather than fast.
JVM_OPTIONS = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)

FORMATTER = "kafka.tools.StorageTool"
BROKER = "kafka.Kafka"

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": NODE_ID,
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    # One node, and few files: its own topics would be of 50 partitions, three times.
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    # Records bear times of long ago.
    "log.retention.ms": -1,
    # Tests wait for compaction.
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
}


class ApacheKafka:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reserved = ReservedPorts(2)
        self.port, self._controller_port = self._reserved.ports
        self._log_path = folder / "kafka.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> ApacheKafka:
        try:
            self._format()
            self._process = self._start(BROKER, str(self._settings_path))
            self._await_answer()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_SECONDS_MAX)
        self._reserved.release()

    def cluster(self) -> Cluster:
        """A client of ours."""
        return Cluster(self.bootstrap, client_id="chronik-testing")

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        """Under its own name, with keys like `cleanup_policy`. Returns when its partitions have leaders."""
        topic = NewTopic(name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()})
        with self.cluster() as cluster:
            create_topics(cluster, [topic])
            assert len(cluster.retrying(lambda: cluster.partitions(name))) == partitions
        return name

    @property
    def _settings_path(self) -> Path:
        return self._folder / "server.properties"

    def _format(self) -> None:
        places = {
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{HOST}:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": f"{NODE_ID}@{HOST}:{self._controller_port}",
            "log.dirs": self._folder / "data",
        }
        lines = [f"{name}={value}" for name, value in (SETTINGS | places).items()]
        self._settings_path.write_text("\n".join(lines) + "\n")
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        arguments = ("format", "--cluster-id", cluster_id, "--config", str(self._settings_path))
        assert self._start(FORMATTER, *arguments).wait(START_SECONDS_MAX) == 0, self._last_words()

    def _start(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        class_path = os.pathsep.join(map(str, jars_of(APACHE_KAFKA)))
        with self._log_path.open("ab") as log:
            return subprocess.Popen(
                [str(find_java().home / "bin" / "java"), *JVM_OPTIONS, "-cp", class_path, main, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _await_answer(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            assert self._process.poll() is None, f"Kafka ended:\n{self._last_words()}"
            assert time.monotonic() < deadline, f"Kafka does not answer:\n{self._last_words()}"
            time.sleep(POLL_SECONDS)

    def _answers(self) -> bool:
        """Whether it lists itself: before that, topics could be created nowhere."""
        try:
            connection = Connection(Address(HOST, self.port), client_id="chronik-testing", timeout_s=ASK_SECONDS_MAX)
            try:
                request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
                return bool(connection.request(request, MetadataResponse).brokers)
            finally:
                connection.close()
        except ClientError:
            return False

    def _last_words(self) -> str:
        return self._log_path.read_bytes()[-LOG_BYTES_SHOWN:].decode(errors="replace")
