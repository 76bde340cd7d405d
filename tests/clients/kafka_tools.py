"""Kafka's own command line tools, as `tools/clients/setup` fetches them."""

from __future__ import annotations

import subprocess
from typing import Final

import pytest

from .catalogue import JVM_OPTIONS, TOOLS

RUN_SECONDS_MAX: Final = 120.0
"""For a machine that does much else."""

_JARS: Final = TOOLS / "jars" / "kafka-tools"
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


def run_tool(name: str, bootstrap: str, *arguments: str) -> str:
    """What it prints. Raises ToolFailed when it says that something went wrong; skips the test where it is missing."""
    if not _JARS.exists():
        pytest.skip("kafka-tools: not set up; run tools/clients/setup")
    command = ["java", *JVM_OPTIONS, "-cp", f"{_JARS}/*", MAINS[name], "--bootstrap-server", bootstrap, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)
    if done.returncode != 0:
        raise ToolFailed(done.stdout + done.stderr)
    return done.stdout
