"""Progress reports of a landing driver, the interface of their receivers, and reporters for terminals and logs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TextIO

from chronik.pipeline_journal import ColumnInfo, LandingState
from chronik.wording import pluralize


@dataclass(frozen=True, slots=True)
class TopicReport:
    """A report on how far the records of a topic have landed, that is, have been written to its table."""

    pipeline: str
    """Name of the pipeline, which is also its consumer group."""
    topic: str
    table: str
    """URI of the table."""
    state: LandingState
    next_offsets: Mapping[int, int]
    """Offset below which all records are in the table, by partition. Partitions without any are omitted."""
    high_watermarks: Mapping[int, int]
    """Last stable offset when the round was planned, by partition."""
    round_rows: int = 0
    """Number of rows landed in this round, including dead-letter records."""
    round_dead_letters: int = 0
    round_bytes: int = 0
    """Size in bytes of the files committed in this round."""
    round_bytes_max: int = 0
    """Maximum bytes of a round of all topics while it is reduced, because the store is slow; 0 otherwise."""
    round_seconds: float = 0.0
    round_engine: str | None = None
    """Where the round ran: `driver` (in this process) or `spark`; None if it read nothing."""
    round_misfits: Mapping[str, int] = field(default_factory=dict)
    """Number of values that did not fit their column in this round, for columns with more than a few such values."""
    total_rows: int = 0
    """Number of rows written to the table since the driver started."""
    total_dead_letters: int = 0
    last_error: str | None = None
    """The error of the last failed round, even if a later round succeeded."""
    warnings: Sequence[str] = field(default=())
    """Warnings of this round, such as deleted offsets or fields that cannot become columns."""
    columns: Sequence[ColumnInfo] = field(default=())
    """Columns of the table when the last round was planned; empty before the table is read."""
    at_ms: int = 0

    @property
    def lag(self) -> int:
        """Number of offsets that are not in the table yet."""
        return sum(max(0, end - self.next_offsets.get(partition, 0)) for partition, end in self.high_watermarks.items())

    @property
    def rows_per_second(self) -> float:
        return self.round_rows / self.round_seconds if self.round_seconds > 0 else 0.0


class DriverRole(StrEnum):
    """The role of a driver among the drivers that stand by for each other."""

    ACTIVE = "active"
    """The driver writes records to tables."""
    STANDBY = "standby"
    """The driver waits until the active one fails."""


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """A report on a maintenance of a topic's table or its dead-letter table."""

    pipeline: str
    topic: str
    table: str
    """URI of the table."""
    action: str
    """`compaction`, `metadata`, `vacuum`, or `examination` if the table could not be examined."""
    outcome: str
    """`done`, `abandoned` because of a concurrent commit, or `failed`."""
    files_removed: int = 0
    """Number of files that were merged."""
    files_added: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    files_deleted: int = 0
    """Number of unused files that were deleted from the storage."""
    versions_expired: int = 0
    seconds: float = 0.0
    error: str | None = None
    at_ms: int = 0


class ProgressReporter:
    """A receiver of progress reports; this base class ignores them.

    The driver calls it from its own thread and waits for it: methods must not raise and should return quickly.
    """

    def report(self, report: TopicReport) -> None:
        """Receive a report, after each round of a topic and when its state changes."""

    def report_role(self, role: DriverRole) -> None:
        """Receive the role of a driver that runs with others, of which one is active, after each change of the role."""

    def report_maintenance(self, report: MaintenanceReport) -> None:
        """Receive a report after a maintenance, in another thread than the driver's."""

    def is_paused(self, topic: str) -> bool:
        """Return whether a topic is paused; called before each round."""
        return False

    def close(self) -> None:
        """Release resources; called when the driver has stopped, after the last report."""


class CombinedReporter(ProgressReporter):
    """A reporter that forwards each report to several reporters. A topic is paused if any of them has paused it."""

    def __init__(self, *reporters: ProgressReporter) -> None:
        self._reporters = reporters

    def report(self, report: TopicReport) -> None:
        for reporter in self._reporters:
            reporter.report(report)

    def report_role(self, role: DriverRole) -> None:
        for reporter in self._reporters:
            reporter.report_role(role)

    def report_maintenance(self, report: MaintenanceReport) -> None:
        for reporter in self._reporters:
            reporter.report_maintenance(report)

    def is_paused(self, topic: str) -> bool:
        return any(reporter.is_paused(topic) for reporter in self._reporters)

    def close(self) -> None:
        for reporter in self._reporters:
            reporter.close()


def format_report(report: TopicReport) -> str | None:
    """Format a landing report as one line of text; return None for a round that wrote no rows."""
    if report.state is LandingState.FAILING:
        return f"{report.topic}: {report.last_error}"
    if report.state is LandingState.PAUSED:
        return f"{report.topic}: paused"
    if not report.round_rows:
        return None
    line = (
        f"{report.topic}: {pluralize(report.round_rows, 'record')} in {report.round_seconds:.1f} s"
        f" ({report.rows_per_second:,.0f}/s){' on Spark' if report.round_engine == 'spark' else ''}, lag {report.lag:,}"
    )
    return line + (
        f", {pluralize(report.round_dead_letters, 'dead-letter record')}" if report.round_dead_letters else ""
    )


def format_maintenance_report(report: MaintenanceReport) -> str | None:
    """Format a maintenance report as one line of text; return None if nothing has changed."""
    name = report.table.rpartition("/")[2]
    if report.outcome == "failed":
        return f"{name}: table maintenance failed: {report.action}: {report.error}; it will be retried"
    if report.outcome == "abandoned":
        return f"{name}: compaction abandoned: another process has replaced some of the files"
    if report.action == "compaction":
        return (
            f"{name}: {pluralize(report.files_removed, 'file')} merged into {report.files_added} in"
            f" {report.seconds:.1f} s, {report.bytes_before:,} to {pluralize(report.bytes_after, 'byte')}"
        )
    if report.action == "metadata":
        return f"{name}: metadata compacted in {report.seconds:.1f} s"
    if not report.versions_expired and not report.files_deleted:
        return None
    return (
        f"{name}: {pluralize(report.versions_expired, 'version')} expired,"
        f" {pluralize(report.files_deleted, 'unused file')} deleted in {report.seconds:.1f} s"
    )


class ConsoleReporter(ProgressReporter):
    """A reporter that prints each report as one line, omitting repetitions of a topic's last line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._last_lines: dict[str, str] = {}

    def report(self, report: TopicReport) -> None:
        for warning in report.warnings:
            self._print_once(f"{report.topic} warning", f"{report.topic}: {warning}")
        line = format_report(report)
        if line is not None:
            self._print_once(report.topic, line)

    def report_role(self, role: DriverRole) -> None:
        print(f"driver role: {role}", file=self._stream, flush=True)

    def report_maintenance(self, report: MaintenanceReport) -> None:
        line = format_maintenance_report(report)
        if line is not None:
            self._print_once(f"{report.table} maintenance", line)

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

    def report_role(self, role: DriverRole) -> None:
        print(json.dumps({"role": role, "pid": os.getpid()}), file=self._stream, flush=True)

    def report_maintenance(self, report: MaintenanceReport) -> None:
        print(json.dumps({"event": "maintenance"} | asdict(report)), file=self._stream, flush=True)
