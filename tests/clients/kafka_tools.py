"""Kafka's own command line tools, as `tools/clients/setup` fetches them."""

from __future__ import annotations

import subprocess
from typing import Final

import pytest

from tests.archives import KAFKA_TOOLS, kafka_tools_archive, using

from .catalogue import JVM_OPTIONS

RUN_SECONDS_MAX: Final = 120.0
"""For a machine that does much else."""

_PACKAGE: Final = "org.apache.kafka.tools"
MAINS: Final = {
    "kafka-acls": f"{_PACKAGE}.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-features": f"{_PACKAGE}.FeatureCommand",
    "kafka-log-dirs": f"{_PACKAGE}.LogDirsCommand",
    "kafka-metadata-quorum": f"{_PACKAGE}.MetadataQuorumCommand",
    "kafka-transactions": f"{_PACKAGE}.TransactionsCommand",
}


class ToolFailed(Exception):
    """With all that it said."""


def java_command(main: str) -> list[str]:
    """Skips the test where the tools are missing."""
    if not KAFKA_TOOLS.exists():
        pytest.skip("kafka-tools: not set up; run tools/clients/setup")
    return ["java", *JVM_OPTIONS, *using(kafka_tools_archive()), "-cp", f"{KAFKA_TOOLS}/*", main]


def run_tool(name: str, bootstrap: str, *arguments: str) -> str:
    """What it prints. Raises ToolFailed when it says that something went wrong; skips the test where it is missing."""
    command = [*java_command(MAINS[name]), "--bootstrap-server", bootstrap, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)
    if done.returncode != 0:
        raise ToolFailed(done.stdout + done.stderr)
    return done.stdout
