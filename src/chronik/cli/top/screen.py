"""A terminal that is drawn on in place, and left as it was: the alternate screen, no echo, no cursor.

Whatever ends the program within (q, Ctrl-C, SIGTERM, an error), the terminal gets its settings and its screen back; so
it does while it is stopped by Ctrl-Z.
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

from chronik.cli.top.frame import Line, Style

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[2J"
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
HOME, TO_LINE_END, TO_SCREEN_END, RESET = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[0m"

CODES: Final = {
    Style.PLAIN: "",
    Style.TITLE: "\x1b[1m",
    Style.HEADING: "\x1b[1m",
    Style.ERROR: "\x1b[1;31m",
    Style.WARNING: "\x1b[33m",
    Style.FAINT: "\x1b[2m",
}

KEY_BYTES_MAX: Final = 64
SIGNALS: Final = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGTERM, signal.SIGHUP)


class Terminated(SystemExit):
    """SIGTERM or SIGHUP: ends the program by way of everything that has to be put back."""


def drawn(lines: Sequence[Line], *, in_colour: bool) -> str:
    """Returns what draws a frame over the one before, whatever that was."""
    texts = [f"{CODES[line.style]}{line.text}{RESET}" if in_colour and line.text else line.text for line in lines]
    return HOME + f"{TO_LINE_END}\r\n".join(texts) + TO_LINE_END + TO_SCREEN_END


class Screen:
    """Use it as a context manager, in the main thread."""

    def __init__(self, stdin: TextIO, stdout: TextIO) -> None:
        self._in = stdin.fileno()
        self._out = stdout.fileno()
        self._before: list[Any] = []
        self._handlers: dict[signal.Signals, Any] = {}
        self._in_colour = not os.environ.get("NO_COLOR")
        self._woken, self._waker = socket.socketpair()
        self._wakeup_before = -1

    def __enter__(self) -> Screen:
        self._before = termios.tcgetattr(self._in)
        for each in (self._woken, self._waker):
            each.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            self._handlers[number] = signal.signal(number, self._signalled)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._woken.close()
        self._waker.close()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        found = os.get_terminal_size(self._out)
        return max(1, found.columns), max(1, found.lines)

    def draw(self, lines: Sequence[Line]) -> None:
        self._write(drawn(lines, in_colour=self._in_colour))

    def wake(self) -> None:
        """May be called from any thread: `key` returns."""
        try:
            self._waker.send(b"\0")
        except OSError:  # it is full, which wakes as well; or all is over
            return

    def key(self, timeout_s: float) -> str:
        """Returns what was typed; nothing when the time is over, the size has changed or somebody wakes us."""
        woken = self._woken.fileno()
        ready, _, _ = select.select([self._in, woken], [], [], timeout_s)
        if woken in ready:
            self._woken.recv(KEY_BYTES_MAX)
        if self._in not in ready:
            return ""
        typed = os.read(self._in, KEY_BYTES_MAX).decode(errors="replace")
        return typed or "q"  # the terminal is gone

    def _take(self) -> None:
        tty.setcbreak(self._in)
        self._write(ENTER)

    def _give_back(self) -> None:
        self._write(RESET + LEAVE)
        termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def _signalled(self, number: int, _: FrameType | None) -> None:
        if number in (signal.SIGTERM, signal.SIGHUP):
            raise Terminated(128 + number)
        if number == signal.SIGTSTP:
            self._give_back()
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTSTP)  # stops here, until SIGCONT
            signal.signal(signal.SIGTSTP, self._signalled)
            self._take()

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            try:
                data = data[os.write(self._out, data) :]
            except BlockingIOError:
                select.select([], [self._out], [])


def is_possible() -> bool:
    """Whether somebody sits there who sees and types."""
    return sys.stdin.isatty() and sys.stdout.isatty()
