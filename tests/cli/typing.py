"""A command on a terminal of its own, and somebody who types there."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SECONDS_MAX = 120.0


class Typing:
    """Use it as a context manager: whatever happens, the command is ended."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> None:
        self._command = command
        self._environment = environment
        self._folder = folder
        self._pid = 0
        self._terminal = -1
        self._status: int | None = None
        self.seen = ""
        """All that was shown, codes and all."""
        self._read_to = 0

    def __enter__(self) -> Typing:
        self._pid, self._terminal = pty.fork()
        if not self._pid:
            try:
                if self._folder is not None:
                    os.chdir(self._folder)
                os.execvpe(self._command[0], list(self._command), dict(self._environment))
            finally:
                os._exit(127)
        self.resize(100, 30)
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._terminal)

    def resize(self, columns: int, lines: int) -> None:
        """The system tells the command so, as it does when a window changes."""
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._terminal)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def kill(self, number: signal.Signals) -> None:
        os.kill(self._pid, number)

    def until(self, text: str) -> str:
        """Waits until it is shown, behind what was waited for before; returns what came up to it."""
        deadline = time.monotonic() + SECONDS_MAX
        while (at := self.seen.find(text, self._read_to)) < 0:
            if time.monotonic() > deadline or not self._read():
                raise AssertionError(f"{text!r} was not shown: {self.seen[self._read_to :]!r}")
        before, self._read_to = self.seen[self._read_to : at], at + len(text)
        return before

    def code(self) -> int:
        """Waits for its end, and reads what it has said till then."""
        deadline = time.monotonic() + SECONDS_MAX
        while self._read():
            if time.monotonic() > deadline:
                raise AssertionError(f"it goes on: {self.seen[-2000:]!r}")
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._status

    def _read(self) -> bool:
        """Says whether more may come: not when nobody has the other end any more."""
        ready, _, _ = select.select([self._terminal], [], [], 0.1)
        if not ready:
            return True
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # how Linux says so
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)
