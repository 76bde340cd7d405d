"""A long-running Spark Connect server, which saves the cold start of each command.

The server listens only on the loopback address and requires a token, because a client that may send queries can run
code as the user that started the server.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import chronik
from chronik.errors import ChronikError
from chronik.pipeline.spark.environment_checks import get_installed_version
from chronik.pipeline.spark.installation import get_cache_directory
from chronik.pipeline.spark.masters import LOCAL_MASTER, LOOPBACK, is_local_master
from chronik.pipeline.spark.runtime import build_default_settings, build_spark_environment

WARM_DAEMON_MODULE = "chronik.pipeline.query.warm_daemon"
"""Python module that Spark runs as the worker daemon. The daemon is a process of its own."""

SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"

START_SECONDS_MAX = 120.0
"""Maximum time for the server to start. It usually takes about five seconds."""

STOP_SECONDS_MAX = 20.0
"""Time to wait for the server to stop before it is killed. It has no state to lose."""

POLL_SECONDS = 0.1
LOG_BYTES_SHOWN = 2000


class ServerStartError(ChronikError):
    """A Spark Connect server that did not start. The message ends with the tail of its log."""


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """A running Spark Connect server, as recorded in server.json."""

    pid: int
    started: str
    """Start time of the process, which distinguishes it from a later process with the same pid."""
    port: int
    token: str
    master: str
    log: str
    made_by: str = ""
    """Versions of Python and the packages with which the server was started. The installation may have changed since
    then."""

    @property
    def url(self) -> str:
        """The Spark Connect URL of the server, with a numeric address since a host name may resolve to several."""
        return f"sc://{LOOPBACK}:{self.port}/;token={self.token}"

    @property
    def is_alive(self) -> bool:
        return _read_process_start_time(self.pid) == self.started


def ensure_server(master: str | None = None, directory: Path | None = None) -> ConnectServer:
    """Return the running Connect server if it has this master and installation; otherwise replace it with a new one.

    Raises:
        ServerStartError, JavaNotFoundError, PySparkNotFoundError: No server could be started.
    """
    directory = directory or _get_default_server_directory()
    with _lock_directory(directory):
        found = find_matching_server(master, directory)
        if found is not None:
            return found
        outdated = _read_server_record(directory)
        if outdated is not None:
            _terminate_server(outdated)
        return _start_server(master or LOCAL_MASTER, directory)


def find_matching_server(master: str | None = None, directory: Path | None = None) -> ConnectServer | None:
    """Return the running server if its installation and master match; otherwise None. A master of None matches any."""
    found = find_running_server(directory)
    is_match = found is not None and master in (None, found.master) and found.made_by == _describe_installation()
    return found if is_match else None


def find_running_server(directory: Path | None = None) -> ConnectServer | None:
    """Return the recorded Connect server if it is running and accepts connections, or None."""
    found = _read_server_record(directory or _get_default_server_directory())
    return found if found is not None and _accepts_connections(found.port) else None


def stop_server(directory: Path | None = None) -> bool:
    """Stop the Spark Connect server recorded in server.json, and return whether one was running."""
    directory = directory or _get_default_server_directory()
    with _lock_directory(directory):
        found = _read_server_record(directory)
        if found is not None:
            _terminate_server(found)
        _get_server_record_path(directory).unlink(missing_ok=True)
        return found is not None


def _describe_installation() -> str:
    return f"{sys.executable}, chronik {chronik.__version__}, pyspark {get_installed_version('pyspark')}"


def _get_default_server_directory() -> Path:
    return get_cache_directory() / "connect"


def _get_server_record_path(directory: Path) -> Path:
    return directory / "server.json"


def _read_server_record(directory: Path) -> ConnectServer | None:
    """Return the recorded server if its process is still running, or None."""
    try:
        server = ConnectServer(**json.loads(_get_server_record_path(directory).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return server if server.is_alive else None


@contextlib.contextmanager
def _lock_directory(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start_server(master: str, directory: Path) -> ConnectServer:
    token = secrets.token_urlsafe(32)
    port = _find_free_port()
    variables = os.environ | build_spark_environment(master) | {"SPARK_CONNECT_AUTHENTICATE_TOKEN": token}
    conf = build_default_settings(master) | {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
    }
    if is_local_master(master):
        conf["spark.python.daemon.module"] = WARM_DAEMON_MODULE
    options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    submit = str(Path(variables["SPARK_HOME"]) / "bin" / "spark-submit")
    log = directory / "server.log"
    pid = _spawn_process([submit, "--master", master, "--class", SERVER_CLASS, *options], variables, directory, log)
    server = ConnectServer(
        pid, _read_process_start_time(pid) or "", port, token, master, str(log), _describe_installation()
    )
    try:
        _wait(lambda: not server.is_alive or _accepts_connections(port), START_SECONDS_MAX)
        if not server.is_alive or not _accepts_connections(port):
            end = log.read_bytes()[-LOG_BYTES_SHOWN:].decode(errors="replace").strip()
            raise ServerStartError(f"the Spark Connect server did not start; end of its log {log}: {end}")
        _write_private_file(_get_server_record_path(directory), json.dumps(asdict(server)))
    except BaseException:
        _terminate_server(server)
        raise
    return server


def _spawn_process(command: list[str], variables: dict[str, str], directory: Path, log: Path) -> int:
    """Start a process in its own session, which Ctrl-C does not interrupt, and return its pid."""
    shell_command = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(directory), *command]
    log_output = (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), log_output, (os.POSIX_SPAWN_DUP2, 1, 2)]
    return os.posix_spawn(shell_command[0], shell_command, variables, file_actions=files, setsid=True)


def _write_private_file(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    temporary.rename(path)


def _terminate_server(server: ConnectServer) -> None:
    for number, seconds in ((signal.SIGTERM, STOP_SECONDS_MAX), (signal.SIGKILL, STOP_SECONDS_MAX)):
        if not server.is_alive:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, number)
        _wait(lambda: not server.is_alive, seconds)


def _wait(done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _accepts_connections(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=5.0):
        return True
    return False


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _read_process_start_time(pid: int) -> str | None:
    """Return the operating system's start time of a process, or None if it has ended."""
    try:
        ended, _ = os.waitpid(pid, os.WNOHANG)
        if ended:
            return None
        is_child = True  # a zombie child disappears when its last thread has ended
    except ChildProcessError:
        is_child = False
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if words[0] == "Z" and not is_child else words[19]
    except OSError:
        pass
    if Path("/proc/self/stat").exists():
        return None
    result = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return result.stdout.strip() or None
