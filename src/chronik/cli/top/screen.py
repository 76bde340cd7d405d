"""Full-screen terminal output: the alternate screen, without echo and cursor.

The terminal settings and the previous screen are restored however the program ends (q, Ctrl-C, SIGTERM or an error),
and while it is suspended with Ctrl-Z.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import termios
import tty
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final, TextIO

from chronik.cli.top.frame import StyledLine, TextStyle

ENTER_FULL_SCREEN: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
LEAVE_FULL_SCREEN: Final = "\x1b[?25h\x1b[?1049l"
HOME, TO_LINE_END, TO_SCREEN_END, RESET = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[0m"

STYLE_CODES: Final = {
    TextStyle.PLAIN: "",
    TextStyle.TITLE: "\x1b[1m",
    TextStyle.HEADING: "\x1b[1m",
    TextStyle.ERROR: "\x1b[1;31m",
    TextStyle.WARNING: "\x1b[33m",
    TextStyle.FAINT: "\x1b[2m",
}

KEY_BYTES_MAX: Final = 64
SIGNALS: Final = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGTERM, signal.SIGHUP)


class Terminated(SystemExit):
    """An exception raised on SIGTERM and SIGHUP, so that the program exits through all context managers."""


def render_lines(lines: Sequence[StyledLine], *, use_color: bool) -> str:
    """Return the text and escape sequences that draw a frame over the previous one."""
    texts = [f"{STYLE_CODES[line.style]}{line.text}{RESET}" if use_color and line.text else line.text for line in lines]
    return HOME + f"{TO_LINE_END}\r\n".join(texts) + TO_LINE_END + TO_SCREEN_END


class TerminalScreen:
    """A terminal in full-screen mode; use it as a context manager in the main thread."""

    def __init__(self, stdin: TextIO, stdout: TextIO) -> None:
        self._in = stdin.fileno()
        self._out = stdout.fileno()
        self._saved_settings: list[Any] = []
        self._handlers: dict[signal.Signals, Any] = {}
        self._in_colour = not os.environ.get("NO_COLOR")
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wakeup_before = -1

    def __enter__(self) -> TerminalScreen:
        self._saved_settings = termios.tcgetattr(self._in)
        for each in (self._wake_receiver, self._wake_sender):
            each.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._wake_sender.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            self._handlers[number] = signal.signal(number, self._handle_signal)
        self._enter_full_screen()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave_full_screen()
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._wake_receiver.close()
        self._wake_sender.close()

    @property
    def size(self) -> tuple[int, int]:
        """The current number of columns and lines."""
        found = os.get_terminal_size(self._out)
        return max(1, found.columns), max(1, found.lines)

    def draw(self, lines: Sequence[StyledLine]) -> None:
        self._write(render_lines(lines, use_color=self._in_colour))

    def wake(self) -> None:
        """Make a blocked `read_keys` return. Thread-safe."""
        try:
            self._wake_sender.send(b"\0")
        except OSError:  # the socket is full, which also wakes the reader, or closed
            return

    def read_keys(self, timeout_s: float) -> str:
        """Return the typed characters, or an empty string after a timeout, a resize or a call of `wake`."""
        woken = self._wake_receiver.fileno()
        ready, _, _ = select.select([self._in, woken], [], [], timeout_s)
        if woken in ready:
            self._wake_receiver.recv(KEY_BYTES_MAX)
        if self._in not in ready:
            return ""
        typed = os.read(self._in, KEY_BYTES_MAX).decode(errors="replace")
        return typed or "q"  # end of file: the terminal was closed

    def _enter_full_screen(self) -> None:
        tty.setcbreak(self._in)
        self._write(ENTER_FULL_SCREEN)

    def _leave_full_screen(self) -> None:
        self._write(RESET + LEAVE_FULL_SCREEN)
        termios.tcsetattr(self._in, termios.TCSADRAIN, self._saved_settings)

    def _handle_signal(self, number: int, _: FrameType | None) -> None:
        if number in (signal.SIGTERM, signal.SIGHUP):
            raise Terminated(128 + number)
        if number == signal.SIGTSTP:
            self._leave_full_screen()
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTSTP)  # the process is suspended here until SIGCONT
            signal.signal(signal.SIGTSTP, self._handle_signal)
            self._enter_full_screen()

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            try:
                data = data[os.write(self._out, data) :]
            except BlockingIOError:
                select.select([], [self._out], [])


def is_interactive() -> bool:
    """Return whether stdin and stdout are terminals."""
    return sys.stdin.isatty() and sys.stdout.isatty()
