"""Which client can do what, as a run of these tests has shown it: CHRONIK_RECORD_CLIENTS=docs/client-compatibility.json

names a file for it. `python -m tools.docs` makes a table of that file: docs/client-compatibility.md.
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

from .catalogue import CLIENTS, DRIVERS_SOURCES, TOOLS

FILE = "CHRONIK_RECORD_CLIENTS"

FEATURES = {
    "test_a_client_reads_exactly_what_another_wrote": "write and read",
    "test_compressed_records_stay_compressed_in_the_log": "compression",
    "test_two_members_share_partitions_and_rebalance_on_join_and_leave": "groups",
    "test_a_group_keeps_committed_offsets_with_metadata_and_resumes_there": "groups",
    "test_kcat_resumes_after_what_it_committed_on_leaving": "groups",
    "test_a_cooperative_rebalance_takes_only_what_must_move": "cooperative rebalance",
    "test_idempotent_producers": "idempotent producer",
    "test_transactions_of_every_client": "transactions",
    "test_one_id_has_many_transactions": "transactions",
    "test_admin_clients": "administration",
    "test_kafkas_own_tools": "administration",
    "test_kafkas_acls_tool": "administration",
    "test_kafkas_transactions_tool": "administration",
    "test_every_client_speaks_tls": "TLS",
    "test_passwords_and_tokens_of_every_client": "passwords and tokens",
    "test_sessions_are_renewed": "sessions that end",
    "test_frameworks_write_exactly_once": "transactions",
}
"""By the name of a test, or of the file that it is in."""

CLIENT_PARAMETERS = ("client", "name", "admin", "writer", "reader")
WITHOUT_PARAMETERS = {
    "test_kcat_resumes_after_what_it_committed_on_leaving": "kcat",
    "test_kafkas_own_tools": "Kafka's own tools",
    "test_kafkas_acls_tool": "Kafka's own tools",
    "test_kafkas_transactions_tool": "Kafka's own tools",
    "test_a_worker_of_connect_that_is_killed_reads_its_file_exactly_once": "Kafka Connect",
    "test_a_job_of_flinks_that_fails_writes_exactly_once": "Flink",
}
PACKAGES = {"kafka-python": "kafka-python", "aiokafka": "aiokafka", "confluent": "confluent-kafka"}
JARS = {
    "java-3.9": ("java/java-3.9/lib", "kafka-clients"),
    "java-4": ("java/java-4/lib", "kafka-clients"),
    "Kafka's own tools": ("jars/kafka-tools", "kafka-tools"),
    "Kafka Connect": ("jars/connect", "connect-runtime"),
    "Flink": ("flink/lib", "flink-connector-kafka"),
}


class Recorder:
    """Counts, by client and feature, how tests ended."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, dict[str, int]]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        report = yield
        if report.when == "call" or report.outcome != "passed":
            self.count(_names(item), getattr(item, "callspec", None), report.outcome)
        return report

    def count(self, names: tuple[str, str], callspec: Any, outcome: str) -> None:
        """`names` are those of a test and of its file."""
        feature = next((FEATURES[name] for name in names if name in FEATURES), None)
        for client in clients_of(names, callspec.params if callspec else {}) if feature else ():
            ended = self.counts.setdefault(client, {}).setdefault(str(feature), {})
            ended[outcome] = ended.get(outcome, 0) + 1

    def pytest_sessionfinish(self) -> None:
        target = os.environ.get(FILE)
        if target and self.counts:
            Path(target).write_text(self.told(), encoding="utf-8")

    def told(self) -> str:
        clients = {name: {"version": version_of(name), "features": self.counts[name]} for name in sorted(self.counts)}
        return json.dumps(clients, indent=1, sort_keys=True) + "\n"


def _names(item: pytest.Item) -> tuple[str, str]:
    return getattr(item, "originalname", item.name), item.path.stem


def clients_of(names: Iterable[str], parameters: dict[str, Any]) -> list[str]:
    named = [parameters[name] for name in CLIENT_PARAMETERS if name in parameters]
    found = [name for name in dict.fromkeys(named) if name in CLIENTS]
    return found or [WITHOUT_PARAMETERS[name] for name in names if name in WITHOUT_PARAMETERS][:1]


def version_of(client: str) -> str:
    if client in PACKAGES:
        return version(PACKAGES[client])
    if client == "kcat":
        told = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
        return re.sub(r".*\bVersion (\S+).*", r"\1", told, flags=re.DOTALL)
    if client == "kafkajs":
        pinned = json.loads((DRIVERS_SOURCES / "node" / "package.json").read_text())
        return str(pinned["dependencies"]["kafkajs"])
    folder, jar = JARS.get(client, ("", ""))
    found = sorted((TOOLS / folder).glob(f"{jar}-[0-9]*.jar")) if folder else []
    if found:
        return found[0].stem.removeprefix(f"{jar}-")
    spoken = re.fullmatch(r"kafka-python-(.*)", client)
    try:
        return f"{version('kafka-python')}, as for Kafka {spoken[1]}" if spoken else ""
    except PackageNotFoundError:
        return ""
