"""Bars: what a person at a terminal sees, and that a log sees nothing."""

from __future__ import annotations

import io

from chronik.clock import ManualClock
from chronik.pipeline.journal.bars import Bar, drawn, span


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_says_how_much_how_fast_and_how_long() -> None:
    line = drawn("orders", 2_500_000, 5_000_000, "rows", 2.5)
    assert line == "orders  [############............]  50%  2,500,000 of 5,000,000 rows  1,000,000/s  2 s left"


def test_work_of_unknown_size_and_no_work_at_all_are_drawn_too() -> None:
    assert drawn("files", 3, None, "files", 2.0) == "files  3 files  1.5/s"
    assert drawn("files", 0, 0, "files", 0.0, width=4) == "files  [####] 100%  0 of 0 files  0.0/s"
    assert drawn("files", 7, 5, "files", 1.0, width=4) == "files  [####] 100%  7 of 5 files  7.0/s"


def test_spans_of_time_are_as_exact_as_people_want_them() -> None:
    assert [span(each) for each in (0.9, 119, 120, 7199, 7800, 200_000)] == [
        "0 s", "119 s", "2 min", "119 min", "2 h 10 min", "2 d",
    ]  # fmt: skip


def test_a_terminal_is_drawn_over_and_keeps_the_last_line() -> None:
    terminal, clock = Terminal(), ManualClock()
    with Bar("orders", 100, stream=terminal, clock=clock) as bar:
        for _ in range(100):
            clock.advance(0.01)
            bar.advance()
    *drawings, end = terminal.getvalue().split("\r")
    assert end.endswith("\n")
    assert "100 of 100 rows" in end
    assert 10 <= len(drawings) <= 12, "no more than ten a second"


def test_where_nobody_looks_nothing_is_written() -> None:
    log = io.StringIO()
    with Bar("orders", 2, stream=log) as bar:
        bar.advance()
        bar.reach(2, total=3)
    assert log.getvalue() == ""
    assert (bar.done, bar.total) == (2, 3)


def test_what_is_done_soon_is_not_shown() -> None:
    terminal, clock = Terminal(), ManualClock()
    with Bar("orders", 2, stream=terminal, clock=clock, hidden_for_s=1.0) as bar:
        clock.advance(0.9)
        bar.advance()
    assert terminal.getvalue() == ""
    with Bar("orders", 2, stream=terminal, clock=clock, hidden_for_s=1.0) as bar:
        clock.advance(1.0)
        bar.advance()
    assert "1 of 2 rows" in terminal.getvalue()
