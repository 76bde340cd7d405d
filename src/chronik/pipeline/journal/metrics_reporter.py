"""A reporter that serves a driver's progress as Prometheus metrics at `http://HOST:PORT/metrics`."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from chronik.console.prometheus import CONTENT_TYPE, format_exposition
from chronik.console.status_source import Metric, Sample
from chronik.errors import ConfigError
from chronik.listeners import Address
from chronik.pipeline.journal.reports import MaintenanceReport, ProgressReporter, TopicReport
from chronik.pipeline_journal import LandingState

REQUEST_SECONDS_MAX: Final = 10.0
"""Timeout in seconds of a read from an HTTP client, after which its connection is closed."""


@dataclass(frozen=True, slots=True)
class MaintenanceTotals:
    """Totals of one kind of maintenance since the driver started."""

    count: int = 0
    seconds: float = 0.0
    files: int = 0
    """Number of files that were merged or deleted."""
    bytes: int = 0
    """Size in bytes of the files that were merged."""

    def add(self, report: MaintenanceReport) -> MaintenanceTotals:
        return MaintenanceTotals(
            self.count + 1,
            self.seconds + report.seconds,
            self.files + report.files_removed + report.files_deleted,
            self.bytes + report.bytes_before,
        )


class MetricsReporter(ProgressReporter):
    """A reporter that serves the latest report of each topic. Call `close` to stop the HTTP server."""

    def __init__(self, address: Address) -> None:
        """Start the HTTP server.

        Raises:
            ConfigError: The port cannot be opened.
        """
        self._lock = threading.Lock()
        self._latest: dict[str, TopicReport] = {}
        self._last_rounds: dict[str, TopicReport] = {}
        """The last report of each topic whose round wrote rows."""
        self._maintenance: dict[tuple[str, str, str, str], MaintenanceTotals] = {}
        """The maintenance of tables by pipeline, topic, action and outcome."""
        try:
            self._server = _MetricsServer(address, self.format_metrics)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"cannot serve metrics at {address}: {reason}; choose another address") from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="chronik-metrics", daemon=True)
        self._thread.start()

    def report(self, report: TopicReport) -> None:
        with self._lock:
            self._latest[report.topic] = report
            if report.round_rows:
                self._last_rounds[report.topic] = report

    def report_maintenance(self, report: MaintenanceReport) -> None:
        key = (report.pipeline, report.topic, report.action, report.outcome)
        with self._lock:
            self._maintenance[key] = self._maintenance.get(key, MaintenanceTotals()).add(report)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def format_metrics(self) -> str:
        """Return all metrics in the Prometheus text format."""
        with self._lock:
            reports, rounds = list(self._latest.values()), list(self._last_rounds.values())
            maintenance = dict(self._maintenance)
        return format_exposition(
            (
                _build_metric(
                    "chronik_pipeline_lag_records",
                    "gauge",
                    "Records that have not landed.",
                    reports,
                    lambda each: each.lag,
                ),
                _build_metric(
                    "chronik_pipeline_rows_total",
                    "counter",
                    "Rows written to the table since the driver started.",
                    reports,
                    lambda each: each.total_rows,
                ),
                _build_metric(
                    "chronik_pipeline_dead_letters_total",
                    "counter",
                    "Dead-letter records since the driver started.",
                    reports,
                    lambda each: each.total_dead_letters,
                ),
                _build_metric(
                    "chronik_pipeline_failing",
                    "gauge",
                    "Whether the last landing round failed and will be retried.",
                    reports,
                    lambda each: int(each.state is LandingState.FAILING),
                ),
                _build_metric(
                    "chronik_pipeline_last_report_timestamp_seconds",
                    "gauge",
                    "Time of the last report.",
                    reports,
                    lambda each: each.at_ms / 1000,
                ),
                _build_metric(
                    "chronik_pipeline_round_seconds",
                    "gauge",
                    "Duration of the last round that wrote rows.",
                    rounds,
                    lambda each: each.round_seconds,
                ),
                Metric(
                    "chronik_pipeline_rescued_ratio",
                    "gauge",
                    "Part of the values in the last round with rows that did not fit their column, if above 1 %.",
                    [
                        Sample(count / each.round_rows, _build_labels(each) | {"column": column})
                        for each in rounds
                        for column, count in each.round_misfits.items()
                    ],
                ),
                *_build_maintenance_metrics(maintenance),
            )
        )


def _build_maintenance_metrics(totals: Mapping[tuple[str, str, str, str], MaintenanceTotals]) -> Iterator[Metric]:
    families: tuple[tuple[str, str, Callable[[MaintenanceTotals], float]], ...] = (
        (
            "chronik_pipeline_maintenance_total",
            "Maintenance of tables since the driver started.",
            lambda each: each.count,
        ),
        ("chronik_pipeline_maintenance_seconds_total", "Time spent on maintenance.", lambda each: each.seconds),
        ("chronik_pipeline_maintenance_files_total", "Files merged or deleted.", lambda each: each.files),
        ("chronik_pipeline_maintenance_bytes_total", "Size of the merged files.", lambda each: each.bytes),
    )
    for name, help, value in families:
        samples = [
            Sample(value(each), {"pipeline": pipeline, "topic": topic, "action": action, "outcome": outcome})
            for (pipeline, topic, action, outcome), each in totals.items()
        ]
        yield Metric(name, "counter", help, samples)


def _build_metric(
    name: str, kind: str, help: str, reports: Iterable[TopicReport], value: Callable[[TopicReport], float]
) -> Metric:
    return Metric(name, kind, help, [Sample(value(each), _build_labels(each)) for each in reports])


def _build_labels(report: TopicReport) -> dict[str, str]:
    return {"pipeline": report.pipeline, "topic": report.topic}


class _MetricsServer(ThreadingHTTPServer):
    """An HTTP server for `GET /metrics`."""

    daemon_threads = True

    def __init__(self, address: Address, format_metrics: Callable[[], str]) -> None:
        self.format_metrics = format_metrics
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        super().__init__((address.host, address.port), _RequestHandler)


class _RequestHandler(BaseHTTPRequestHandler):
    """A handler of one HTTP connection."""

    timeout = REQUEST_SECONDS_MAX
    server: _MetricsServer

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND, explain="the metrics are at /metrics")
            return
        body = self.server.format_metrics().encode(errors="replace")
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: scrapes are frequent."""
