"""The Kafka clients under test: how each is started, and why one may be unavailable."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from tests.archives import archive_options, java_client_archive
from tests.jvm_options import SHORT_LIVED

CLIENTS_DIRECTORY = Path(__file__).parent
PROJECT = CLIENTS_DIRECTORY.parent.parent
TOOLS = PROJECT / ".tools"
DRIVERS_SOURCES = PROJECT / "tools" / "clients"

# A small heap is enough: a driver processes a few thousand records.
JVM_OPTIONS = ("-Xmx256m", *SHORT_LIVED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")


@dataclass(frozen=True)
class ClientProgram:
    name: str
    command: tuple[str, ...]
    program: str | None = None  # an executable that must be on the PATH
    files: Path | None = None  # a path that `tools/clients/setup` creates
    environment: tuple[tuple[str, str], ...] = ()
    reads_without_group: bool = True
    administers: bool = False

    def missing_reason(self) -> str | None:
        """Return why this client cannot run here, or None if it can."""
        reason_file = TOOLS / "missing" / self.name
        if reason_file.exists():
            return f"{self.name}: {reason_file.read_text().strip()}"
        if self.program is not None and shutil.which(self.program) is None:
            return f"{self.name}: {self.program} is not installed; run tools/clients/setup"
        if self.files is not None and not self.files.exists():
            return f"{self.name}: not installed; run tools/clients/setup"
        return None

    def full_environment(self) -> dict[str, str]:
        return {**os.environ, **dict(self.environment)}


def _python(name: str, module: str, *arguments: str, administers: bool = False) -> ClientProgram:
    return ClientProgram(name, (sys.executable, "-m", f"drivers.{module}", *arguments), administers=administers)


def _java(name: str) -> ClientProgram:
    library = TOOLS / "java" / name / "lib"
    archived = archive_options(java_client_archive(library))
    command = ("java", *JVM_OPTIONS, *archived, "-cp", f"{library}/*", "chronik.clients.Main")
    return ClientProgram(name, command, program="java", files=library / "client-driver-1.jar", administers=True)


def _kcat() -> ClientProgram:
    return ClientProgram("kcat", (sys.executable, "-m", "drivers.kcat"), program="kcat")


def _kafkajs() -> ClientProgram:
    packages = TOOLS / "node" / "node_modules"
    return ClientProgram(
        "kafkajs",
        ("node", str(DRIVERS_SOURCES / "node" / "driver.js")),
        program="node",
        files=packages / "kafkajs",
        environment=(("NODE_PATH", str(packages)), ("KAFKAJS_NO_PARTITIONER_WARNING", "1")),
        reads_without_group=False,
    )


CLIENTS: dict[str, ClientProgram] = {
    client.name: client
    for client in (
        _python("kafka-python", "kafka_python", "auto", administers=True),
        _python("kafka-python-2.6.0", "kafka_python", "2.6.0", administers=True),
        _python("kafka-python-0.10.1", "kafka_python", "0.10.1"),
        _python("kafka-python-0.10.0", "kafka_python", "0.10.0"),
        _python("aiokafka", "aiokafka_driver"),
        _python("confluent", "confluent", administers=True),
        _kcat(),
        _kafkajs(),
        _java("java-3.9"),
        _java("java-4"),
    )
}


def _secured_java(name: str) -> ClientProgram:
    """Return a client with the single-file program for TLS and SASL. Kafka 4's client needs jose4j for tokens."""
    jars = (TOOLS / "java" / name / "lib" / "*", *(TOOLS / "jars").glob("*/jose4j-*.jar"))
    program = str(DRIVERS_SOURCES / "secured" / "Secured.java")
    return replace(CLIENTS[name], command=("java", *JVM_OPTIONS, "-cp", ":".join(map(str, jars)), program))


SECURED_CLIENTS: dict[str, ClientProgram] = {
    **{name: CLIENTS[name] for name in ("confluent", "kafka-python", "aiokafka", "kafkajs")},
    **{name: _secured_java(name) for name in ("java-3.9", "java-4")},
}
"""Clients that support the command `write_and_read`, which tests TLS and SASL."""
