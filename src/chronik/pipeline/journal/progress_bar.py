"""A progress bar on a terminal: one line that is redrawn, and no output if the stream is not a terminal.

with Bar("orders", total=5_000_000, unit="rows") as bar:
    for part in parts:
        bar.advance(part.rows)

orders  [############............]  51%  2,550,000 of 5,000,000 rows  812,000/s  3 s left
"""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from typing import Final, TextIO

from chronik.clock import Clock, SystemClock
from chronik.escaping import escape, raw_stream

WIDTH: Final = 24
REDRAW_SECONDS_MIN: Final = 0.1
"""Minimum time in seconds between two redraws of the progress bar."""

LINE_START: Final = "\r"
CLEAR_TO_END: Final = "\x1b[K"


def format_progress(what: str, done: int, total: int | None, unit: str, seconds: float, width: int = WIDTH) -> str:
    """Format a progress line with the amount done, the rate and the remaining time; `total` may be None (unknown)."""
    rate = done / seconds if seconds > 0 else 0.0
    speed = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"
    if total is None:
        return f"{what}  {done:,} {unit}  {speed}"
    ratio = min(1.0, done / total) if total else 1.0
    full = int(width * ratio)
    line = f"{what}  [{'#' * full}{'.' * (width - full)}] {int(100 * ratio):3d}%  {done:,} of {total:,} {unit}  {speed}"
    if done >= total or not rate:
        return line
    return f"{line}  {format_duration((total - done) / rate)} left"


def format_duration(seconds: float) -> str:
    """Format a duration with a precision that suits its size: `40 s`, `5 min`, `2 h 10 min`, `3 d`."""
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d"


class ProgressBar:
    """A progress bar, drawn only on a terminal. `total` may grow, and may be unknown (None)."""

    def __init__(
        self,
        what: str,
        total: int | None = None,
        *,
        unit: str = "rows",
        stream: TextIO | None = None,
        clock: Clock | None = None,
        delay_s: float = 0.0,
    ) -> None:
        """Create a progress bar that stays hidden for the first `delay_s` seconds."""
        self.label, self.unit = what, unit
        self.done, self.total = 0, total
        self._stream = raw_stream(sys.stderr if stream is None else stream)
        self._clock = clock or SystemClock()
        self._visible = self._stream.isatty()
        self._started = self._clock.monotonic()
        self._drawn_at: float | None = None
        self._shown_from = self._started + delay_s

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def advance(self, count: int = 1) -> None:
        self.update(self.done + count)

    def update(self, done: int, total: int | None = None) -> None:
        """Set the amount of work done, and the total amount if given."""
        self.done = done
        if total is not None:
            self.total = total
        now = self._clock.monotonic()
        if now < self._shown_from:
            return
        if self._drawn_at is None or now - self._drawn_at >= REDRAW_SECONDS_MIN:
            self._draw(now)

    def close(self) -> None:
        """Stop drawing, and leave the last drawn state of the progress bar on the terminal."""
        if self._drawn_at is not None:
            self._draw(self._clock.monotonic())
            self._write("\n")
            self._drawn_at = None

    def _draw(self, now: float) -> None:
        self._drawn_at = now
        if self._visible:
            line = format_progress(escape(self.label), self.done, self.total, self.unit, now - self._started)
            # A wrapped line could not be overwritten.
            self._write(f"{LINE_START}{line[: get_terminal_size().columns - 1]}{CLEAR_TO_END}")

    def _write(self, text: str) -> None:
        if self._visible:
            self._stream.write(text)
            self._stream.flush()
