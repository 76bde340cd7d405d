"""The progress bar of `chronik consume` when stdout is redirected."""

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


def progress_output(
    monkeypatch: pytest.MonkeyPatch, out: io.StringIO, *, follow: bool = False, most: int | None = None
) -> str:
    monkeypatch.setattr(consume, "PROGRESS_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(sys, "stdout", out)
    arguments = Namespace(topic="orders", follow=follow, max_records=most)
    with consume._progress(arguments, POSITIONS, ENDS) as advance:
        advance(3)
    return terminal.getvalue()


def test_consume_shows_progress_when_stdout_is_redirected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "3 of 12 records" in progress_output(monkeypatch, io.StringIO())
    assert "3 of 5 records" in progress_output(monkeypatch, io.StringIO(), most=5)


def test_consume_shows_no_progress_on_terminal_or_with_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress_output(monkeypatch, Terminal()) == ""
    assert progress_output(monkeypatch, io.StringIO(), follow=True) == ""
