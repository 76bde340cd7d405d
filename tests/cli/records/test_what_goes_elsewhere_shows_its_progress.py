"""`consume` into a file or a pipe shows on the terminal how far it is; records themselves are shown by themselves."""

from __future__ import annotations

import io
import sys
from argparse import Namespace

import pytest

from chronik.cli.records import consume
from chronik.client.records import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
POSITIONS, ENDS = {FIRST: 2, SECOND: 0}, {FIRST: 10, SECOND: 4}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, out: io.StringIO, *, follow: bool = False, most: int | None = None) -> str:
    monkeypatch.setattr(consume, "PROGRESS_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(sys, "stdout", out)
    arguments = Namespace(topic="orders", follow=follow, max_records=most)
    with consume._progress(arguments, POSITIONS, ENDS) as tell:
        tell(3)
    return terminal.getvalue()


def test_what_goes_to_a_file_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "3 of 12 records" in shown(monkeypatch, io.StringIO())
    assert "3 of 5 records" in shown(monkeypatch, io.StringIO(), most=5)


def test_what_is_shown_itself_or_never_ends_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Terminal()) == ""
    assert shown(monkeypatch, io.StringIO(), follow=True) == ""
