"""Fork server for test brokers: forks them from a process that has imported everything, in a fifth of the time.

Imports are most of the cost of a start, and tests start hundreds of brokers. Each broker is still a process of its own
that can be killed, paused and inspected. There are two fork servers, so that the nodes of a cluster have different hash
seeds, and an accidental dependency on the order of a set is detected.

Linux only: on other systems, and for brokers with another command line, each process is started from scratch.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, Protocol

from chronik.testing.fork_server_process import DESCRIPTORS_PER_REQUEST

FORK_SERVER_COUNT: Final = 2
"""Number of fork server processes, between which new brokers alternate."""
FORK_AUDIT_EVENT: Final = "chronik.testing.fork"
"""Name of the `sys.audit` event that is raised for a forked broker."""


class BrokerProcess(Protocol):
    """The interface of a broker process, a subset of `subprocess.Popen`."""

    @property
    def pid(self) -> int: ...
    @property
    def stdin(self) -> IO[bytes] | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, signal: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class ForkedProcess:
    """A broker process started by a fork server, which reports its exit code."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes], told: int) -> None:
        """Read the process id from `told`, the pipe from the fork server. Raises OSError if the server has exited."""
        self.stdin = stdin
        self.stdout = stdout
        self._told: Final = os.fdopen(told, "rb", buffering=0)
        self._lock = threading.Lock()
        self._code: int | None = None
        if not (pid := self._line()):
            raise OSError("the fork server has ended")
        self.pid: Final = int(pid)

    def poll(self) -> int | None:
        """Return the exit code, or None while the process is running."""
        with self._lock:
            if self._code is None and select.select([self._told], [], [], 0)[0]:
                line = self._line()
                self._told.close()
                self._code = int(line) if line else self._kill_orphan()
            return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process exits, and return the exit code. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left_seconds = None if deadline is None else deadline - time.monotonic()
            if left_seconds is not None and left_seconds <= 0:
                raise subprocess.TimeoutExpired("a broker", timeout or 0.0)
            self._wait_readable(left_seconds)
        return code

    def _wait_readable(self, seconds: float | None) -> None:
        try:
            select.select([self._told], [], [], seconds)
        except ValueError:  # another thread has read the exit code and closed the pipe
            return

    def send_signal(self, number: int, /) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended after the check
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait_until_stopped(self) -> None:
        """Wait until all threads of the process are stopped or the process has exited."""
        while self.poll() is None and not all(state in "TXZ" for state in self._iter_thread_states()):
            time.sleep(0.0005)  # the kernel notifies only parents

    def _iter_thread_states(self) -> Iterator[str]:
        for task in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            try:
                yield task.read_text().rpartition(")")[2].split()[0]
            except OSError:  # the thread has ended
                continue

    def _line(self) -> bytes:
        return self._told.readline()

    def _kill_orphan(self) -> int:
        """Kill the process, because the fork server was killed and cannot report its exit."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return -signal.SIGKILL


class ForkServer:
    """A fork server: a process with preloaded modules that forks test brokers on request."""

    def __init__(self) -> None:
        self._control, server_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with server_socket:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "chronik.testing.fork_server_process", str(server_socket.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[server_socket.fileno()],
                process_group=0,
            )
        atexit.register(self.close)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, log: IO[bytes]) -> ForkedProcess:
        """Fork a broker whose stderr is `log`. Raises OSError."""
        sys.audit(FORK_AUDIT_EVENT)
        request = json.dumps({"folder": os.getcwd(), "environment": dict(os.environ)}).encode()
        (stdin, our_stdin), (our_stdout, stdout), (our_told, told) = (os.pipe() for _ in range(3))
        files = [stdin, stdout, log.fileno(), told]
        assert len(files) == DESCRIPTORS_PER_REQUEST
        try:
            socket.send_fds(self._control, [request], files)
        finally:
            for each in (stdin, stdout, told):
                os.close(each)
        return ForkedProcess(os.fdopen(our_stdin, "wb"), os.fdopen(our_stdout, "rb"), our_told)

    def close(self) -> None:
        self._control.close()
        self._process.wait()


_fork_servers: list[ForkServer] = []
_fork_counter = itertools.count()
_lock = threading.Lock()


def fork_broker(log: IO[bytes]) -> ForkedProcess | None:
    """Return a forked broker process that waits for its config, or None where fork servers are not supported."""
    if sys.platform != "linux":
        return None
    with _lock:
        _fork_servers[:] = [each for each in _fork_servers if each.is_alive]
        if len(_fork_servers) < FORK_SERVER_COUNT:
            _fork_servers.append(ForkServer())
            return _fork_servers[-1].fork(log)
        return _fork_servers[next(_fork_counter) % FORK_SERVER_COUNT].fork(log)
