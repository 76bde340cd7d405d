"""What a driver says on a terminal or in a log: a line for each round that did something, or failed."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TextIO

from chronik.pipeline.journal.reporting import Reporter, State, TopicReport
from chronik.wording import counted


def told(report: TopicReport) -> str | None:
    """Returns one line; None for a round without news."""
    if report.state is State.FAILING:
        return f"{report.topic}: {report.last_error}"
    if report.state is State.PAUSED:
        return f"{report.topic}: paused"
    if not report.round_rows:
        return None
    line = (
        f"{report.topic}: {counted(report.round_rows, 'record')} in {report.round_seconds:.1f} s"
        f" ({report.rows_per_second:,.0f}/s), {report.lag:,} to go"
    )
    return line + (f", {counted(report.round_dead_letters, 'dead letter')}" if report.round_dead_letters else "")


class ConsoleReporter(Reporter):
    """Says the same thing once, however often it is true."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._said: dict[str, str] = {}

    def report(self, report: TopicReport) -> None:
        for warning in report.warnings:
            self._say(f"{report.topic} warning", f"{report.topic}: {warning}")
        line = told(report)
        if line is not None:
            self._say(report.topic, line)

    def _say(self, about: str, line: str) -> None:
        if self._said.get(about) != line:
            self._said[about] = line
            print(line, file=self._stream, flush=True)


class JsonReporter(Reporter):
    """Prints a line of JSON for each report, with everything in it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream

    def report(self, report: TopicReport) -> None:
        print(json.dumps(asdict(report) | {"lag": report.lag}), file=self._stream, flush=True)
