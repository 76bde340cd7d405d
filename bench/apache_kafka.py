"""Apache Kafka as a reference: KRaft nodes from the jars that `tools/clients/setup` downloads from Maven Central.

with ApacheKafka(folder) as kafka:
    Producer({"bootstrap.servers": kafka.bootstrap})
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from types import TracebackType
from typing import Final

from bench.servers import ROOT, responds_to_api_versions
from chronik.bench.errors import BenchmarkError
from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.connection import BrokerConnection
from chronik.client.errors import ClientError
from chronik.config import Address
from chronik.pipeline.spark.installation import find_java
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse
from chronik.testing.ports import HOST, ReservedPorts

START_SECONDS_MAX: Final = 120.0
"""Generous, for a machine with other load."""

STOP_SECONDS_MAX: Final = 20.0
ASK_SECONDS_MAX: Final = 5.0
FIRST_ANSWER_POLL_SECONDS: Final = 0.005
POLL_SECONDS: Final = 0.1
LOG_BYTES_SHOWN: Final = 3000
CLIENT_ID: Final = "chronik-testing"
NAME: Final = "apache-kafka"
TOOLS: Final = "kafka-tools"

QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
FAST_START_OPTIONS: Final = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", QUIET)
"""JVM options for a fast start rather than high throughput."""

DEFAULT_JVM_OPTIONS: Final = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    QUIET,
)
"""The JVM options of kafka-server-start.sh."""

FORMATTER: Final = "kafka.tools.StorageTool"
BROKER: Final = "kafka.Kafka"

SETTINGS: Final[dict[str, object]] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    # Single-node defaults with few files: Kafka's internal topics would have 50 partitions and three replicas.
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    # Release the page cache of deleted topics immediately: the first use of fresh memory is slow.
    "log.segment.delete.delay.ms": 0,
    # Records have old timestamps.
    "log.retention.ms": -1,
    # Tests wait for compaction.
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
}

REPLICATED: Final = tuple(name for name in SETTINGS if name.endswith("replication.factor"))


def kafka_unavailable_reason() -> str | None:
    """Return why Apache Kafka is not available, or None if its jars are installed."""
    if _jars():
        return None
    reason_file = ROOT / ".tools" / "missing" / NAME
    return reason_file.read_text().strip() if reason_file.exists() else f"not set up; run tools/clients/setup {NAME}"


def kafka_version() -> str:
    """Return the version of the installed Apache Kafka jar."""
    for jar in (ROOT / ".tools" / "jars" / NAME).glob("kafka-server-[0-9]*.jar"):
        return f"Apache Kafka {jar.stem.removeprefix('kafka-server-')}"
    jars = [path.stem for path in (ROOT / ".tools" / "jars" / NAME).glob("kafka-clients-*.jar")]
    return f"Apache Kafka {re.sub('.*-', '', jars[0])}" if jars else "Apache Kafka"


def describe_kafka(missing: str | None) -> str:
    """Return the version of Apache Kafka, or why it is not measured."""
    return kafka_version() if missing is None else f"Apache Kafka is left out: {missing}"


def _jars() -> list[Path]:
    return sorted((ROOT / ".tools" / "jars" / NAME).glob("*.jar"))


def run_tool(main: str, *arguments: str) -> str:
    """Run one of Kafka's command-line tools and return its output. Raises BenchFailed."""
    jars = sorted((ROOT / ".tools" / "jars" / TOOLS).glob("*.jar"))
    if not jars:
        raise BenchmarkError(f"Kafka's tools are not installed; run tools/clients/setup {TOOLS}")
    command = [str(find_java().home / "bin" / "java"), "-Xmx512m", "-cp", os.pathsep.join(map(str, jars)), main]
    completed = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if completed.returncode:
        raise BenchmarkError(f"{main} failed:\n{completed.stderr[-LOG_BYTES_SHOWN:]}")
    return completed.stdout


class ApacheKafka:
    """An Apache Kafka cluster in combined KRaft mode, as a context manager."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        jvm_options: tuple[str, ...] = FAST_START_OPTIONS,
        keystore: Path | None = None,
        cipher: str = "",
    ) -> None:
        """Reserve ports. With a PEM keystore, the nodes get a second listener with TLS 1.3 and the given cipher."""
        self._directory = folder
        self._jvm_options = jvm_options
        self._keystore = keystore
        self._cipher = cipher
        self._reserved = ReservedPorts(3 * nodes)
        self._ports, self._controller_ports = self._reserved.ports[:nodes], self._reserved.ports[nodes : 2 * nodes]
        self._tls_ports = self._reserved.ports[2 * nodes :]
        self._log_path = folder / "kafka.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.first_response_seconds = 0.0
        """Time from starting the processes until each has responded."""

    @property
    def port(self) -> int:
        return self._ports[0]

    @property
    def addresses(self) -> list[str]:
        """The addresses of all nodes, as entries of bootstrap.servers."""
        return [f"{self.host(index)}:{port}" for index, port in enumerate(self._ports)]

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses)

    def host(self, index: int) -> str:
        """Return the host of a node. Subclasses may run it in another network namespace."""
        return HOST

    def extra_settings(self, index: int) -> dict[str, object]:
        """Return additional settings of a node. Subclasses override it."""
        return {}

    @property
    def tls_bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._tls_ports)

    @property
    def pid(self) -> int:
        """Process id of the first node."""
        return self._processes[0].pid

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def __enter__(self) -> ApacheKafka:
        """Format the data directories, start the nodes and wait until they are ready. Raises BenchFailed."""
        try:
            self._format()
            started = time.perf_counter()
            self._processes = [self._start_node(index) for index in range(len(self._ports))]
            self._wait_for_responses()
            self.first_response_seconds = time.perf_counter() - started
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for index in range(len(self._processes)):
            self.kill(index)
        self._reserved.release()

    # Faults of single nodes, by index from 0

    def kill(self, index: int) -> None:
        """Kill a node and wait for its process. Has no effect on a dead node."""
        process = self._processes[index]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS_MAX)

    def restart(self, index: int) -> None:
        """Start a node again without waiting for it."""
        self._processes[index] = self._start_node(index)

    def pause(self, index: int) -> None:
        os.killpg(self._processes[index].pid, signal.SIGSTOP)

    def resume(self, index: int) -> None:
        os.killpg(self._processes[index].pid, signal.SIGCONT)

    def cluster(self) -> ClusterClient:
        """Return a Chronik client of this cluster."""
        return ClusterClient(self.bootstrap, client_id=CLIENT_ID)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        """Create a topic and wait until its partitions have leaders. Config keys use underscores for dots."""
        topic = NewTopic(name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()})
        with self.cluster() as cluster:
            create_topics(cluster, [topic])
            assert len(cluster.retry(lambda: cluster.partitions(name))) == partitions
        return name

    def _settings_path(self, index: int) -> Path:
        return self._directory / f"server-{index + 1}.properties"

    def _format(self) -> None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        voters = [f"{index + 1}@{self.host(index)}:{port}" for index, port in enumerate(self._controller_ports)]
        for index, port in enumerate(self._ports):
            host = self.host(index)
            node_settings: dict[str, object] = {
                "node.id": index + 1,
                "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{self._controller_ports[index]}",
                "advertised.listeners": f"PLAINTEXT://{host}:{port}",
                "controller.quorum.voters": ",".join(voters),
                "log.dirs": self._directory / f"data-{index + 1}",
            }
            if self._keystore is not None:
                node_settings |= self._tls_listener_settings(index, node_settings)
            if len(self._ports) > 1:
                node_settings |= dict.fromkeys(REPLICATED, len(self._ports)) | {"transaction.state.log.min.isr": 2}
            node_settings |= self.extra_settings(index)
            lines = [f"{name}={value}" for name, value in {**SETTINGS, **node_settings}.items()]
            self._settings_path(index).write_text("\n".join(lines) + "\n")
            # In one argument, because an id may start with a dash.
            arguments = ("format", f"--cluster-id={cluster_id}", "--config", str(self._settings_path(index)))
            if self._start(FORMATTER, *arguments).wait(START_SECONDS_MAX) != 0:
                raise BenchmarkError(f"Kafka's data directory could not be formatted:\n{self._log_tail()}")

    def _tls_listener_settings(self, index: int, node_settings: dict[str, object]) -> dict[str, object]:
        tls_listener = f",SSL://{HOST}:{self._tls_ports[index]}"
        return {
            "listeners": f"{node_settings['listeners']}{tls_listener}",
            "advertised.listeners": f"{node_settings['advertised.listeners']}{tls_listener}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._keystore,
            "ssl.enabled.protocols": "TLSv1.3",
            "ssl.cipher.suites": self._cipher,
        }

    def _start_node(self, index: int) -> subprocess.Popen[bytes]:
        return self._start(BROKER, str(self._settings_path(index)))

    def _start(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        class_path = os.pathsep.join(map(str, _jars()))
        with self._log_path.open("ab") as log:
            return subprocess.Popen(
                [str(find_java().home / "bin" / "java"), *self._jvm_options, "-cp", class_path, main, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_for_responses(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not all(responds_to_api_versions(port, self.host(index)) for index, port in enumerate(self._ports)):
            self._raise_if_exited()
            if time.monotonic() > deadline:
                raise BenchmarkError(f"Kafka does not respond:\n{self._log_tail()}")
            time.sleep(FIRST_ANSWER_POLL_SECONDS)

    def _raise_if_exited(self) -> None:
        if any(process.poll() is not None for process in self._processes):
            raise BenchmarkError(f"Kafka exited:\n{self._log_tail()}")

    def wait_until_ready(self) -> None:
        """Wait until every node lists all nodes. Raises BenchFailed."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not all(map(self._lists_all, range(len(self._ports)))):
            if any(process.poll() is not None for process in self._processes):
                raise BenchmarkError(f"Kafka exited:\n{self._log_tail()}")
            if time.monotonic() > deadline:
                raise BenchmarkError(f"Kafka does not respond:\n{self._log_tail()}")
            time.sleep(POLL_SECONDS)

    def _lists_all(self, index: int) -> bool:
        """Return whether the node lists all nodes. Before that, topics cannot be created with replicas."""
        try:
            connection = BrokerConnection(self._address(index), client_id=CLIENT_ID, timeout_s=ASK_SECONDS_MAX)
            try:
                request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
                return len(connection.request(request, MetadataResponse).brokers) == len(self._ports)
            finally:
                connection.close()
        except ClientError:
            return False

    def _address(self, index: int) -> Address:
        return Address(self.host(index), self._ports[index])

    def _log_tail(self) -> str:
        return self._log_path.read_bytes()[-LOG_BYTES_SHOWN:].decode(errors="replace")
