"""Reporters for terminals and logs: one line for each round that landed records or failed."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TextIO

from chronik.pipeline.journal.reports import LandingState, ProgressReporter, TopicReport
from chronik.wording import pluralize


def format_report(report: TopicReport) -> str | None:
    """Format a report as one line; return None for a round that landed nothing."""
    if report.state is LandingState.FAILING:
        return f"{report.topic}: {report.last_error}"
    if report.state is LandingState.PAUSED:
        return f"{report.topic}: paused"
    if not report.round_rows:
        return None
    line = (
        f"{report.topic}: {pluralize(report.round_rows, 'record')} in {report.round_seconds:.1f} s"
        f" ({report.rows_per_second:,.0f}/s), lag {report.lag:,}"
    )
    return line + (
        f", {pluralize(report.round_dead_letters, 'dead-letter record')}" if report.round_dead_letters else ""
    )


class ConsoleReporter(ProgressReporter):
    """A reporter that prints lines and suppresses repetitions of the same line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._last_lines: dict[str, str] = {}

    def report(self, report: TopicReport) -> None:
        for warning in report.warnings:
            self._print_once(f"{report.topic} warning", f"{report.topic}: {warning}")
        line = format_report(report)
        if line is not None:
            self._print_once(report.topic, line)

    def _print_once(self, key: str, line: str) -> None:
        if self._last_lines.get(key) != line:
            self._last_lines[key] = line
            print(line, file=self._stream, flush=True)


class JsonReporter(ProgressReporter):
    """A reporter that prints each report as one line of JSON."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream

    def report(self, report: TopicReport) -> None:
        print(json.dumps(asdict(report) | {"lag": report.lag}), file=self._stream, flush=True)
