"""A Spark Connect server that stays: one cold start for many commands. Started once, found again, stopped on request.

It listens on the loopback address alone, and only to those who hold its token: whoever may send it a query may run code
as the user who started it.
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
from chronik.pipeline.spark.cache import cache_folder
from chronik.pipeline.spark.doctor import installed_version
from chronik.pipeline.spark.masters import LOCAL_MASTER, LOOPBACK, is_local
from chronik.pipeline.spark.runtime import environment, settings

WARM_DAEMON = "chronik.pipeline.query.warm_daemon"
"""Spark runs it by this name, in a process of its own."""

SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"

START_SECONDS_MAX = 120.0
"""It takes about five on a quiet machine."""

STOP_SECONDS_MAX = 20.0
"""Then it is killed: a server holds nothing that is not elsewhere."""

POLL_SECONDS = 0.1
LOG_BYTES_SHOWN = 2000


class ServerFailed(ChronikError):
    """The Spark Connect server did not come up; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Server:
    pid: int
    started: str
    """Its start, which tells this process from a later one with the same number."""
    port: int
    token: str
    master: str
    log: str
    made_by: str = ""
    """What runs in it: a server outlives the installation that it was started from."""

    @property
    def url(self) -> str:
        """What `runtime.session` takes as its master: the address itself, since a name may be somebody else's too."""
        return f"sc://{LOOPBACK}:{self.port}/;token={self.token}"

    @property
    def alive(self) -> bool:
        return _started(self.pid) == self.started


def ensure_server(master: str | None = None, folder: Path | None = None) -> Server:
    """Returns one as wanted: the server that runs, or a new one. Raises ServerFailed, JavaMissing, PySparkMissing."""
    folder = folder or _default_folder()
    with _locked(folder):
        found = fitting_server(master, folder)
        if found is not None:
            return found
        unfit = _recorded(folder)
        if unfit is not None:
            _end(unfit)
        return _start(master or LOCAL_MASTER, folder)


def fitting_server(master: str | None = None, folder: Path | None = None) -> Server | None:
    """Returns the server that runs, if it is of this installation and of this master; None stands for any."""
    found = running_server(folder)
    fits = found is not None and master in (None, found.master) and found.made_by == _installation()
    return found if fits else None


def running_server(folder: Path | None = None) -> Server | None:
    found = _recorded(folder or _default_folder())
    return found if found is not None and _answers(found.port) else None


def stop_server(folder: Path | None = None) -> bool:
    """Says whether there was one to stop."""
    folder = folder or _default_folder()
    with _locked(folder):
        found = _recorded(folder)
        if found is not None:
            _end(found)
        _record_of(folder).unlink(missing_ok=True)
        return found is not None


def _installation() -> str:
    return f"{sys.executable}, chronik {chronik.__version__}, pyspark {installed_version('pyspark')}"


def _default_folder() -> Path:
    return cache_folder() / "connect"


def _record_of(folder: Path) -> Path:
    return folder / "server.json"


def _recorded(folder: Path) -> Server | None:
    """Returns the server that was started from here, if that very process still runs."""
    try:
        server = Server(**json.loads(_record_of(folder).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return server if server.alive else None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start(master: str, folder: Path) -> Server:
    token = secrets.token_urlsafe(32)
    port = _free_port()
    variables = os.environ | environment(master) | {"SPARK_CONNECT_AUTHENTICATE_TOKEN": token}
    conf = settings(master) | {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
    }
    if is_local(master):
        conf["spark.python.daemon.module"] = WARM_DAEMON
    options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    submit = str(Path(variables["SPARK_HOME"]) / "bin" / "spark-submit")
    log = folder / "server.log"
    pid = _spawn([submit, "--master", master, "--class", SERVER_CLASS, *options], variables, folder, log)
    server = Server(pid, _started(pid) or "", port, token, master, str(log), _installation())
    try:
        _wait(lambda: not server.alive or _answers(port), START_SECONDS_MAX)
        if not server.alive or not _answers(port):
            end = log.read_bytes()[-LOG_BYTES_SHOWN:].decode(errors="replace").strip()
            raise ServerFailed(f"the Spark Connect server did not start ({log}): {end}")
        _write(_record_of(folder), json.dumps(asdict(server)))
    except BaseException:
        _end(server)
        raise
    return server


def _spawn(command: list[str], variables: dict[str, str], folder: Path, log: Path) -> int:
    """Starts a process that outlives this one, in a session of its own: Ctrl-C ends the command and not the server."""
    within = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(folder), *command]
    to_log = (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), to_log, (os.POSIX_SPAWN_DUP2, 1, 2)]
    return os.posix_spawn(within[0], within, variables, file_actions=files, setsid=True)


def _write(path: Path, text: str) -> None:
    unfinished = path.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    unfinished.rename(path)


def _end(server: Server) -> None:
    for number, seconds in ((signal.SIGTERM, STOP_SECONDS_MAX), (signal.SIGKILL, STOP_SECONDS_MAX)):
        if not server.alive:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, number)
        _wait(lambda: not server.alive, seconds)


def _wait(done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=5.0):
        return True
    return False


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        return int(free.getsockname()[1])


def _started(pid: int) -> str | None:
    """Returns when a process started, as the system writes it; None when there is none, or only its remains."""
    try:
        ended, _ = os.waitpid(pid, os.WNOHANG)
        if ended:
            return None
        ours = True  # its remains are ours to clear away, once its last thread is gone
    except ChildProcessError:
        ours = False
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if words[0] == "Z" and not ours else words[19]
    except OSError:
        pass
    if Path("/proc/self/stat").exists():
        return None
    said = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return said.stdout.strip() or None
