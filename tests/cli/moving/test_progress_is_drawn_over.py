"""What `backup`, `restore` and `cluster import` show while they run is one line of a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from chronik.cli.moving.moves import Progress
from chronik.shown import escaping_output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_one_line_is_drawn_over_and_names_in_it_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with escaping_output():  # as all commands run
        progress = Progress()
        progress.tell("orders: 9 of 10")
        progress.tell("\x1b[31m")
        progress.tell("1")
        progress.end()
    drawn = ["", "orders: 9 of 10", "\\x1b[31m".ljust(15), "1".ljust(8)]
    assert terminal.getvalue() == "\r".join(drawn) + "\n"


def test_nothing_is_shown_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    progress = Progress()
    progress.tell("orders: 9 of 10")
    progress.end()
    assert log.getvalue() == ""
