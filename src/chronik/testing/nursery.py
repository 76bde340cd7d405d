"""Brokers that start in a fifth of the time: forked off a process that has loaded all that a node needs.

Loading is most of what a start costs, and tests start brokers by the hundred. Each is a process of its own all the
same, which can be killed, paused and looked at. There are two such processes, so that not all nodes of a cluster
have the same seed of hashes: what depends on the order of a set must not look as if it did not.

Linux only: elsewhere, and where a broker is run by another command, each is started from nothing.
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

from chronik.testing.nursery_process import FILES

NURSERIES: Final = 2
STARTED_EVENT: Final = "chronik.testing.fork"
"""What is told to `sys.audit` when a broker is forked."""


class BrokerProcess(Protocol):
    """What a broker's process is asked for, however it was started: as `subprocess.Popen` has it."""

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


class Forked:
    """A process that is nobody's child here: the nursery tells how it ended."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes], told: int) -> None:
        """Raises OSError."""
        self.stdin = stdin
        self.stdout = stdout
        self._told: Final = os.fdopen(told, "rb", buffering=0)
        self._lock = threading.Lock()
        self._code: int | None = None
        if not (pid := self._line()):
            raise OSError("the process that forks brokers has ended")
        self.pid: Final = int(pid)

    def poll(self) -> int | None:
        with self._lock:
            if self._code is None and select.select([self._told], [], [], 0)[0]:
                line = self._line()
                self._told.close()
                self._code = int(line) if line else self._abandoned()
            return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        ends = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if ends is None else ends - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired("a broker", timeout or 0.0)
            self._await_news(left)
        return code

    def _await_news(self, seconds: float | None) -> None:
        try:
            select.select([self._told], [], [], seconds)
        except ValueError:  # another thread has just read how it ended
            return

    def send_signal(self, number: int, /) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # between the look and the signal
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait_until_stopped(self) -> None:
        """Until all of its threads stand still, or it has ended."""
        while self.poll() is None and not all(state in "TXZ" for state in self._states()):
            time.sleep(0.0005)  # the system tells parents alone

    def _states(self) -> Iterator[str]:
        for task in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            try:
                yield task.read_text().rpartition(")")[2].split()[0]
            except OSError:  # a thread that has just ended
                continue

    def _line(self) -> bytes:
        return self._told.readline()

    def _abandoned(self) -> int:
        """The nursery was killed. Nobody will ever tell how this one ends, so it ends now."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return -signal.SIGKILL


class Nursery:
    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "chronik.testing.nursery_process", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        atexit.register(self.close)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def fork(self, log: IO[bytes]) -> Forked:
        """Starts a broker whose stderr is `log`. Raises OSError."""
        sys.audit(STARTED_EVENT)
        request = json.dumps({"folder": os.getcwd(), "environment": dict(os.environ)}).encode()
        (stdin, our_stdin), (our_stdout, stdout), (our_told, told) = (os.pipe() for _ in range(3))
        files = [stdin, stdout, log.fileno(), told]
        assert len(files) == FILES
        try:
            socket.send_fds(self._control, [request], files)
        finally:
            for each in (stdin, stdout, told):
                os.close(each)
        return Forked(os.fdopen(our_stdin, "wb"), os.fdopen(our_stdout, "rb"), our_told)

    def close(self) -> None:
        self._control.close()
        self._process.wait()


_nurseries: list[Nursery] = []
_turns = itertools.count()
_lock = threading.Lock()


def forked(log: IO[bytes]) -> Forked | None:
    """Returns a broker that waits for its config, or None where there are no nurseries."""
    if sys.platform != "linux":
        return None
    with _lock:
        _nurseries[:] = [each for each in _nurseries if each.is_alive]
        if len(_nurseries) < NURSERIES:
            _nurseries.append(Nursery())
            return _nurseries[-1].fork(log)
        return _nurseries[next(_turns) % NURSERIES].fork(log)
