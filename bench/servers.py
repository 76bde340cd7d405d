"""The servers under comparison. Each is a process with its own data directory and port."""

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

from chronik.bench.errors import BenchmarkError
from chronik.config import Address

HOST: Final = "127.0.0.1"
START_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 30.0
RETRY_SECONDS: Final = 0.001

MINIMAL_SERVER, CHRONIK_OS, CHRONIK_GROUP = "minimal server", "Chronik, os", "Chronik, group"
ROOT: Final = Path(__file__).parents[1]


def _minimal_server(folder: Path, port: int) -> list[str]:
    return [sys.executable, "-m", "bench.minimal_server", str(folder), str(port)]


def _chronik(flush: str) -> Callable[[Path, int], list[str]]:
    command = Path(sys.executable).with_name("chronik")  # the installed command, including its start-up time

    def arguments(folder: Path, port: int) -> list[str]:
        location = ["--data", str(folder), "--kafka", f"{HOST}:{port}"]
        return [str(command), "start", *location, "--flush", flush, "--log-level", "warning"]

    return arguments


COMMANDS: Final[dict[str, Callable[[Path, int], list[str]]]] = {
    MINIMAL_SERVER: _minimal_server,
    CHRONIK_OS: _chronik("os"),
    CHRONIK_GROUP: _chronik("group"),
}


def _environment(parent: Path) -> dict[str, str]:
    """Return the environment of servers. Bytecode is cached, as it is for an installed package."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return variables | {"PYTHONPYCACHEPREFIX": str(parent.resolve() / "bytecode")}


class BenchmarkServer:
    """A running server that has responded to its first request. On exit, it is stopped and its data is deleted."""

    def __init__(self, name: str, parent: Path, *, with_http: bool = False) -> None:
        """Reserve a port and a data directory; with `with_http`, also an HTTP address (`http`)."""
        self._name = name
        self.http = Address(HOST, _free_port()) if with_http else None
        self._environment = _environment(parent)
        self._directory = Path(tempfile.mkdtemp(prefix="chronik-bench-", dir=parent))
        self._port = _free_port()
        self.first_response_seconds = 0.0
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> BenchmarkServer:
        started = time.perf_counter()
        command = COMMANDS[self._name](self._directory, self._port)
        if self.http is not None:
            command += ["--http", str(self.http)]
        self._process = subprocess.Popen(command, cwd=ROOT, env=self._environment)
        try:
            self._wait_for_response()
        except BaseException:
            self._stop()
            raise
        self.first_response_seconds = time.perf_counter() - started
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def _wait_for_response(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not responds_to_api_versions(self._port):
            if self._process.poll() is not None:
                raise BenchmarkError(f"{self._name} exited with code {self._process.returncode} before it responded")
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{self._name} did not respond within {START_SECONDS_MAX:g} s")
            time.sleep(RETRY_SECONDS)

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 7, -1)  # version 0, correlation id 7, no client id
_RESPONSE: Final = struct.Struct(">iih")  # size, correlation id, error code


def responds_to_api_versions(port: int, host: str = HOST) -> bool:
    """Return whether an ApiVersions request succeeds. It uses a socket, because a client library adds start-up time."""
    try:
        with socket.create_connection((host, port), timeout=START_SECONDS_MAX) as connection:
            connection.sendall(_API_VERSIONS)
            response = connection.recv(_RESPONSE.size, socket.MSG_WAITALL)
    except ConnectionError:
        return False
    return len(response) == _RESPONSE.size and _RESPONSE.unpack(response)[1:] == (7, 0)
