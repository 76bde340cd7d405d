"""The servers that are compared, each a process of its own with a folder and a port of its own."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final

from chronik.bench.errors import BenchFailed
from chronik.config import Address

HOST: Final = "127.0.0.1"
START_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 30.0
RETRY_SECONDS: Final = 0.001

FLOOR, CHRONIK_OS, CHRONIK_GROUP = "floor", "Chronik, os", "Chronik, group"
ROOT: Final = Path(__file__).parents[1]


def _floor(folder: Path, port: int) -> list[str]:
    return [sys.executable, "-m", "bench.floor", str(folder), str(port)]


def _chronik(flush: str) -> Callable[[Path, int], list[str]]:
    command = Path(sys.executable).with_name("chronik")  # what a user runs, its start-up included

    def arguments(folder: Path, port: int) -> list[str]:
        place = ["--data", str(folder), "--kafka", f"{HOST}:{port}"]
        return [str(command), "start", *place, "--flush", flush, "--log-level", "warning"]

    return arguments


COMMANDS: Final[dict[str, Callable[[Path, int], list[str]]]] = {
    FLOOR: _floor,
    CHRONIK_OS: _chronik("os"),
    CHRONIK_GROUP: _chronik("group"),
}


def _environment(parent: Path) -> dict[str, str]:
    """Compiled modules are kept, as they are once a package is installed, whatever this environment says of it."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(parent.resolve() / "bytecode")}


class Server:
    """A server that has answered its first request; it and its data go away at the end of the `with`."""

    def __init__(self, name: str, parent: Path, *, tells_status: bool = False) -> None:
        """`tells_status`: at `http`."""
        self._name = name
        self.http = Address(HOST, _free_port()) if tells_status else None
        self._environment = _environment(parent)
        self._folder = Path(tempfile.mkdtemp(prefix="chronik-bench-", dir=parent))
        self._port = _free_port()
        self.first_answer_seconds = 0.0
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Server:
        began = time.perf_counter()
        command = COMMANDS[self._name](self._folder, self._port)
        if self.http is not None:
            command += ["--http", str(self.http)]
        self._process = subprocess.Popen(command, cwd=ROOT, env=self._environment)
        try:
            self._await_answer()
        except BaseException:
            self._end()
            raise
        self.first_answer_seconds = time.perf_counter() - began
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not answers_api_versions(self._port):
            if self._process.poll() is not None:
                raise BenchFailed(f"{self._name} ended with exit code {self._process.returncode} before it answered")
            if time.monotonic() > deadline:
                raise BenchFailed(f"{self._name} did not answer within {START_SECONDS_MAX:g} s")
            time.sleep(RETRY_SECONDS)

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 7, -1)  # version 0, correlation id 7, no client id
_ANSWER: Final = struct.Struct(">iih")  # size, correlation id, error code


def answers_api_versions(port: int, host: str = HOST) -> bool:
    """By a bare socket: a client library would add its own start."""
    try:
        with socket.create_connection((host, port), timeout=START_SECONDS_MAX) as connection:
            connection.sendall(_API_VERSIONS)
            answer = connection.recv(_ANSWER.size, socket.MSG_WAITALL)
    except ConnectionError:
        return False
    return len(answer) == _ANSWER.size and _ANSWER.unpack(answer)[1:] == (7, 0)
