"""Progress bars: output on a terminal, and no output to other streams."""

from __future__ import annotations

import io

from chronik.clock import ManualClock
from chronik.pipeline.journal.progress_bar import ProgressBar, format_duration, format_progress


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_line_shows_amount_rate_and_remaining_time() -> None:
    line = format_progress("orders", 2_500_000, 5_000_000, "rows", 2.5)
    assert line == "orders  [############............]  50%  2,500,000 of 5,000,000 rows  1,000,000/s  2 s left"


def test_progress_line_handles_unknown_and_zero_total() -> None:
    assert format_progress("files", 3, None, "files", 2.0) == "files  3 files  1.5/s"
    assert format_progress("files", 0, 0, "files", 0.0, width=4) == "files  [####] 100%  0 of 0 files  0.0/s"
    assert format_progress("files", 7, 5, "files", 1.0, width=4) == "files  [####] 100%  7 of 5 files  7.0/s"


def test_durations_are_formatted_with_suitable_units() -> None:
    assert [format_duration(each) for each in (0.9, 119, 120, 7199, 7800, 200_000)] == [
        "0 s", "119 s", "2 min", "119 min", "2 h 10 min", "2 d",
    ]  # fmt: skip


def test_terminal_line_is_redrawn_and_last_line_is_kept() -> None:
    terminal, clock = Terminal(), ManualClock()
    with ProgressBar("orders", 100, stream=terminal, clock=clock) as bar:
        for _ in range(100):
            clock.advance(0.01)
            bar.advance()
    *drawings, end = terminal.getvalue().split("\r")
    assert end.endswith("\n")
    assert "100 of 100 rows" in end
    assert 10 <= len(drawings) <= 12, "at most ten redraws per second"


def test_nothing_is_written_to_non_terminal_stream() -> None:
    log = io.StringIO()
    with ProgressBar("orders", 2, stream=log) as bar:
        bar.advance()
        bar.update(2, total=3)
    assert log.getvalue() == ""
    assert (bar.done, bar.total) == (2, 3)


def test_bar_is_hidden_until_delay_has_passed() -> None:
    terminal, clock = Terminal(), ManualClock()
    with ProgressBar("orders", 2, stream=terminal, clock=clock, delay_s=1.0) as bar:
        clock.advance(0.9)
        bar.advance()
    assert terminal.getvalue() == ""
    with ProgressBar("orders", 2, stream=terminal, clock=clock, delay_s=1.0) as bar:
        clock.advance(1.0)
        bar.advance()
    assert "1 of 2 rows" in terminal.getvalue()
