"""Kafka's own command line tools, as `tools/clients/setup` fetches them."""

from __future__ import annotations

import atexit
import base64
import subprocess
import threading
from contextlib import suppress
from typing import Final

import pytest

from tests.archives import KAFKA_TOOLS, kafka_tools_archive, using

from .catalogue import DRIVERS_SOURCES, JVM_OPTIONS

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
    code, output, errors = host().run(MAINS[name], "--bootstrap-server", bootstrap, *arguments)
    if code != 0:
        raise ToolFailed(output + errors)
    return output


class Host:
    """A JVM in which tools are run one after the other: see `ToolHost.java`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            java_command(str(DRIVERS_SOURCES / "tools" / "ToolHost.java")),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error. One that hangs is killed, and the next begins anew."""
        watch = threading.Timer(RUN_SECONDS_MAX, self._process.kill)
        watch.start()
        try:
            self._requests.write(" ".join(map(_encoded, words)) + "\n")
            self._requests.flush()
            answer = self._answers.readline().split(" ")
        finally:
            watch.cancel()
            watch.join()
        if len(answer) != 3:
            raise ToolFailed(f"{words} did not end within {RUN_SECONDS_MAX:g} s, or took the JVM with it")
        return int(answer[0]), _decoded(answer[1]), _decoded(answer[2])

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._requests.close()
        self._process.wait(RUN_SECONDS_MAX)
        self._answers.close()


_hosts: list[Host] = []


def host() -> Host:
    """The one of this process, which lives as long. Skips the test where the tools are missing."""
    if _hosts and not _hosts[-1].is_running:
        _hosts.pop().close()
    if not _hosts:
        _hosts.append(Host())
        atexit.register(_hosts[0].close)
    return _hosts[0]


def _encoded(word: str) -> str:
    return base64.b64encode(word.encode()).decode()


def _decoded(word: str) -> str:
    return base64.b64decode(word).decode()
