"""A command in a pseudo-terminal, with scripted input."""

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


class PseudoTerminal:
    """A command in a pseudo-terminal; as a context manager, it kills the command on exit."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None) -> None:
        self._command = command
        self._environment = environment
        self._folder = folder
        self._pid = 0
        self._terminal = -1
        self._status: int | None = None
        self.output = ""
        """All output, including escape sequences."""
        self._read_to = 0

    def __enter__(self) -> PseudoTerminal:
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
        """Resize the terminal; the system sends SIGWINCH to the command."""
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._terminal)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def kill(self, number: signal.Signals) -> None:
        os.kill(self._pid, number)

    def wait_for_output(self, text: str) -> str:
        """Wait for a text after the last match, and return the output before it."""
        deadline = time.monotonic() + SECONDS_MAX
        while (at := self.output.find(text, self._read_to)) < 0:
            if time.monotonic() > deadline or not self._read():
                raise AssertionError(f"{text!r} was not shown: {self.output[self._read_to :]!r}")
        before, self._read_to = self.output[self._read_to : at], at + len(text)
        return before

    def wait_for_exit(self) -> int:
        """Wait for the command to exit, and return its exit code."""
        deadline = time.monotonic() + SECONDS_MAX
        while self._read():
            if time.monotonic() > deadline:
                raise AssertionError(f"the command is still running: {self.output[-2000:]!r}")
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._status

    def _read(self) -> bool:
        """Read available output, and return whether the terminal is still open."""
        ready, _, _ = select.select([self._terminal], [], [], 0.1)
        if not ready:
            return True
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # Linux raises EIO when the terminal is closed
            return False
        self.output += data.decode(errors="replace")
        return bool(data)
