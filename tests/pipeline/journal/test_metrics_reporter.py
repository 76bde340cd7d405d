"""Prometheus metrics of a landing driver, read over HTTP."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pytest

from chronik.errors import ConfigError
from chronik.listeners import Address
from chronik.pipeline.journal.metrics_reporter import MetricsReporter
from chronik.pipeline.journal.reports import TopicReport
from chronik.pipeline_journal import LandingState

LABELS = 'pipeline="lands",topic="orders"'


@pytest.fixture
def reporter() -> Iterator[MetricsReporter]:
    reporter = MetricsReporter(Address("127.0.0.1", 0))
    yield reporter
    reporter.close()


def build_report(state: LandingState = LandingState.WAITING, **fields: object) -> TopicReport:
    return TopicReport("lands", "orders", "/tables/orders", state, {0: 70}, {0: 100}, **fields)  # type: ignore[arg-type]


def read_metrics(reporter: MetricsReporter) -> list[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{reporter.port}/metrics", timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return [line for line in response.read().decode().splitlines() if not line.startswith("#")]


def test_metrics_have_the_latest_report_of_a_topic(reporter: MetricsReporter) -> None:
    assert read_metrics(reporter) == []
    reporter.report(build_report(round_rows=200, round_misfits={"name": 5}, total_rows=200, round_seconds=0.5))
    reporter.report(build_report(LandingState.FAILING, total_rows=200, total_dead_letters=3, at_ms=1500))
    assert read_metrics(reporter) == [
        f"chronik_pipeline_lag_records{{{LABELS}}} 30",
        f"chronik_pipeline_rows_total{{{LABELS}}} 200",
        f"chronik_pipeline_dead_letters_total{{{LABELS}}} 3",
        f"chronik_pipeline_failing{{{LABELS}}} 1",
        f"chronik_pipeline_last_report_timestamp_seconds{{{LABELS}}} 1.5",
        f"chronik_pipeline_round_seconds{{{LABELS}}} 0.5",
        f'chronik_pipeline_rescued_ratio{{{LABELS},column="name"}} 0.025',
    ]


def test_rescued_ratio_is_that_of_the_last_round_with_rows(reporter: MetricsReporter) -> None:
    reporter.report(build_report(round_rows=200, round_misfits={"name": 5}))
    reporter.report(build_report(round_rows=100))
    assert not any("rescued_ratio" in line for line in read_metrics(reporter))


def test_other_path_is_not_found(reporter: MetricsReporter) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{reporter.port}/", timeout=10)


def test_port_in_use_is_reported_in_one_line(reporter: MetricsReporter) -> None:
    with pytest.raises(ConfigError, match=f"127.0.0.1:{reporter.port}"):
        MetricsReporter(Address("127.0.0.1", reporter.port))


@pytest.mark.parametrize(
    "framing",
    [b"Content-Length: 1000\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 0\r\nContent-Length: 9\r\n"],
)
def test_connection_is_closed_after_one_response(reporter: MetricsReporter, framing: bytes) -> None:
    """A body that contains a request is never read as one, since each connection serves a single request."""
    scrape = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
    received = b""
    with socket.create_connection(("127.0.0.1", reporter.port), timeout=10) as connection:
        connection.sendall(scrape + framing + b"\r\n" + scrape + b"\r\n")
        with suppress(ConnectionResetError):
            while block := connection.recv(65536):
                received += block
    assert received.count(b"HTTP/1.") == 1
