"""Recorder of client compatibility: counts test outcomes by client and feature.

CHRONIK_RECORD_CLIENTS=docs/reference/client-compatibility.json names the output file, from which `python -m tools.docs`
generates docs/reference/client-compatibility.md.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from .client_catalog import CLIENTS, DRIVERS_SOURCES, TOOLS

OUTPUT_VARIABLE = "CHRONIK_RECORD_CLIENTS"

FEATURES = {
    "test_client_reads_records_written_by_another_client": "produce and consume",
    "test_compressed_records_stay_compressed_in_log": "compression",
    "test_two_members_rebalance_on_join_and_leave": "consumer groups",
    "test_group_resumes_at_committed_offsets_with_metadata": "consumer groups",
    "test_kcat_resumes_at_offsets_committed_on_leave": "consumer groups",
    "test_cooperative_rebalance_moves_only_necessary_partitions": "cooperative rebalance",
    "test_idempotent_producers": "idempotent producer",
    "test_transactions": "transactions",
    "test_transactional_id_epochs": "transactions",
    "test_admin_clients": "admin",
    "test_kafka_tools": "admin",
    "test_kafka_acls_tool": "admin",
    "test_kafka_transactions_tool": "admin",
    "test_tls": "TLS",
    "test_sasl_mechanisms": "SASL",
    "test_reauthentication": "reauthentication",
    "test_frameworks": "transactions",
}
"""Features by test name or file stem."""

CLIENT_PARAMETERS = ("client", "name", "admin", "writer", "reader")
WITHOUT_PARAMETERS = {
    "test_kcat_resumes_at_offsets_committed_on_leave": "kcat",
    "test_kafka_tools": "Kafka's own tools",
    "test_kafka_acls_tool": "Kafka's own tools",
    "test_kafka_transactions_tool": "Kafka's own tools",
    "test_killed_connect_worker_reads_file_exactly_once": "Kafka Connect",
    "test_failing_flink_job_writes_exactly_once": "Flink",
}
PACKAGES = {"kafka-python": "kafka-python", "aiokafka": "aiokafka", "confluent": "confluent-kafka"}
JARS = {
    "java-3.9": ("java/java-3.9/lib", "kafka-clients"),
    "java-4": ("java/java-4/lib", "kafka-clients"),
    "Kafka's own tools": ("jars/kafka-tools", "kafka-tools"),
    "Kafka Connect": ("jars/connect", "connect-runtime"),
    "Flink": ("flink/lib", "flink-connector-kafka"),
}


class CompatibilityRecorder:
    """A pytest plugin that counts test outcomes by client and feature."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, dict[str, int]]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        report = yield
        if report.when == "call" or report.outcome != "passed":
            self.count(_names(item), getattr(item, "callspec", None), report.outcome)
        return report

    def count(self, names: tuple[str, str], callspec: Any, outcome: str) -> None:
        """Count an outcome. `names` are the names of the test and of its file."""
        feature = next((FEATURES[name] for name in names if name in FEATURES), None)
        for client in find_clients(names, callspec.params if callspec else {}) if feature else ():
            outcomes = self.counts.setdefault(client, {}).setdefault(str(feature), {})
            outcomes[outcome] = outcomes.get(outcome, 0) + 1

    def pytest_sessionfinish(self) -> None:
        target = os.environ.get(OUTPUT_VARIABLE)
        if target and self.counts:
            Path(target).write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        clients = {name: {"version": find_version(name), "features": self.counts[name]} for name in sorted(self.counts)}
        return json.dumps(clients, indent=1, sort_keys=True) + "\n"


def _names(item: pytest.Item) -> tuple[str, str]:
    return getattr(item, "originalname", item.name), item.path.stem


def find_clients(names: Iterable[str], parameters: dict[str, Any]) -> list[str]:
    named = [parameters[name] for name in CLIENT_PARAMETERS if name in parameters]
    found = [name for name in dict.fromkeys(named) if name in CLIENTS]
    return found or [WITHOUT_PARAMETERS[name] for name in names if name in WITHOUT_PARAMETERS][:1]


def find_version(client: str) -> str:
    if client in PACKAGES:
        return version(PACKAGES[client])
    if client == "kcat":
        output = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
        return re.sub(r".*\bVersion (\S+).*", r"\1", output, flags=re.DOTALL)
    if client == "kafkajs":
        pinned = json.loads((DRIVERS_SOURCES / "node" / "package.json").read_text())
        return str(pinned["dependencies"]["kafkajs"])
    directory, jar = JARS.get(client, ("", ""))
    found = sorted((TOOLS / directory).glob(f"{jar}-[0-9]*.jar")) if directory else []
    if found:
        return found[0].stem.removeprefix(f"{jar}-")
    spoken = re.fullmatch(r"kafka-python-(.*)", client)
    try:
        return f"{version('kafka-python')}, as for Kafka {spoken[1]}" if spoken else ""
    except PackageNotFoundError:
        return ""
