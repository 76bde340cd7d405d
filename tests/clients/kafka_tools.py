"""Kafka's own command-line tools, installed by `tools/clients/setup`."""

from __future__ import annotations

import atexit
import base64
import subprocess
import threading
from contextlib import suppress
from typing import Final

import pytest

from tests.archives import KAFKA_TOOLS, archive_options, kafka_tools_archive

from .client_catalog import DRIVERS_SOURCES, JVM_OPTIONS

RUN_SECONDS_MAX: Final = 120.0
"""Generous, for a machine with other load."""

_PACKAGE: Final = "org.apache.kafka.tools"
MAIN_CLASSES: Final = {
    "kafka-acls": f"{_PACKAGE}.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-features": f"{_PACKAGE}.FeatureCommand",
    "kafka-log-dirs": f"{_PACKAGE}.LogDirsCommand",
    "kafka-metadata-quorum": f"{_PACKAGE}.MetadataQuorumCommand",
    "kafka-transactions": f"{_PACKAGE}.TransactionsCommand",
}


class ToolFailed(Exception):
    """A tool exited with an error; the message contains its output."""


def java_command(main: str) -> list[str]:
    """Return the java command for a tool's main class, or skip the test if the tools are not installed."""
    if not KAFKA_TOOLS.exists():
        pytest.skip("kafka-tools: not installed; run tools/clients/setup")
    return ["java", *JVM_OPTIONS, *archive_options(kafka_tools_archive()), "-cp", f"{KAFKA_TOOLS}/*", main]


def run_tool(name: str, bootstrap: str, *arguments: str) -> str:
    """Run a tool and return its standard output. Raises ToolFailed if it fails; skips the test if not installed."""
    code, output, errors = get_tool_host().run(MAIN_CLASSES[name], "--bootstrap-server", bootstrap, *arguments)
    if code != 0:
        raise ToolFailed(output + errors)
    return output


class ToolHost:
    """A JVM that runs tools one after another; see `ToolHost.java`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            java_command(str(DRIVERS_SOURCES / "tools" / "ToolHost.java")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._responses = self._process.stdin, self._process.stdout

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def run(self, *tool_command: str) -> tuple[int, str, str]:
        """Run a tool and return its exit code, standard output and error. A tool that hangs is killed with the JVM."""
        timeout_timer = threading.Timer(RUN_SECONDS_MAX, self._process.kill)
        timeout_timer.start()
        try:
            self._requests.write(" ".join(map(_encode, tool_command)) + "\n")
            self._requests.flush()
            response = self._responses.readline().split(" ")
        finally:
            timeout_timer.cancel()
            timeout_timer.join()
        if len(response) != 3:
            raise ToolFailed(f"{tool_command} did not finish within {RUN_SECONDS_MAX:g} s, or terminated the JVM")
        return int(response[0]), _decode(response[1]), _decode(response[2])

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._requests.close()
        self._process.wait(RUN_SECONDS_MAX)
        self._responses.close()


_hosts: list[ToolHost] = []


def get_tool_host() -> ToolHost:
    """Return the JVM of this process, starting it if necessary. Skips the test if the tools are not installed."""
    if _hosts and not _hosts[-1].is_running:
        _hosts.pop().close()
    if not _hosts:
        _hosts.append(ToolHost())
        atexit.register(_hosts[0].close)
    return _hosts[0]


def _encode(word: str) -> str:
    return base64.b64encode(word.encode()).decode()


def _decode(word: str) -> str:
    return base64.b64decode(word).decode()
