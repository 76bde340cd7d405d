"""The `/status` and `/metrics` pages of nodes, requested concurrently over HTTP.

Metrics are parsed into the sum of the samples of each metric. Labels are ignored, and lines that cannot be parsed are
skipped.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from chronik.config import Address
from chronik.console.http_client import NodeRequestError, http_get

_SAMPLE: Final = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*")

MetricSums = Mapping[str, float]

THREADS_MAX: Final = 16

ERRORS_BY_STATUS: Final = {
    HTTPStatus.UNAUTHORIZED: "the node requires a token: set CHRONIK_HTTP_TOKEN",
    HTTPStatus.FORBIDDEN: "access denied",
}


def sum_metrics(text: str) -> dict[str, float]:
    """Return the value of each metric on a node's page, summed over all labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match is None or line.startswith("#"):
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        found[match["name"]] = found.get(match["name"], 0.0) + value
    return found


def find_first_metric(found: MetricSums, *names: str) -> int | None:
    """Return the value of the first metric in a list that a node reports.

    Metric names may differ between versions of Chronik.
    """
    return next((int(found[name]) for name in names if name in found), None)


class HttpEndpoint(NamedTuple):
    address: Address
    token: str | None = None
    tls: ssl.SSLContext | None = None


class NodePages(NamedTuple):
    """The `/status` and `/metrics` pages of one node."""

    address: str
    status: Mapping[str, Any]
    metrics: MetricSums
    metrics_text: str
    requested_ms: float
    """Local time in milliseconds at which the pages were requested."""
    responded_ms: float

    @property
    def node_id(self) -> int:
        return int(self.status["node_id"])

    @property
    def clock_ahead_ms(self) -> float | None:
        """Time in milliseconds by which the node's clock is ahead of the local clock, or None if unknown.

        Symmetric delays are assumed.
        """
        status_json = self.status.get("time_ms")
        return None if status_json is None else float(status_json) - (self.requested_ms + self.responded_ms) / 2


class PageFailure(NamedTuple):
    address: str
    why: str


def fetch_all_pages(ports: Sequence[HttpEndpoint], timeout_s: float) -> tuple[list[NodePages], list[PageFailure]]:
    """Request the pages of all nodes concurrently in daemon threads, which do not delay the exit of the process."""
    results: list[NodePages | PageFailure] = [PageFailure(str(port.address), "not requested") for port in ports]

    def fetch(number: int) -> None:
        results[number] = fetch_pages(ports[number], timeout_s)

    for start in range(0, len(ports), THREADS_MAX):
        numbers = range(start, min(start + THREADS_MAX, len(ports)))
        threads = [threading.Thread(target=fetch, args=(number,), daemon=True) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return (
        [each for each in results if isinstance(each, NodePages)],
        [each for each in results if isinstance(each, PageFailure)],
    )


def fetch_pages(port: HttpEndpoint, timeout_s: float) -> NodePages | PageFailure:
    address = str(port.address)
    try:
        asked_ms = time.time() * 1000
        status, body = http_get(port.address, "/status", timeout_s, port.token, port.tls)
        answered_ms = time.time() * 1000
        if status != HTTPStatus.OK:
            return PageFailure(address, ERRORS_BY_STATUS.get(HTTPStatus(status), f"HTTP status {status}"))
        status_json = json.loads(body)
        if not isinstance(status_json, dict) or "node_id" not in status_json:
            return PageFailure(address, "the response is not that of a Chronik node")
        status, body = http_get(port.address, "/metrics", timeout_s, port.token, port.tls)
    except NodeRequestError as error:
        return PageFailure(address, str(error))
    except ValueError:
        return PageFailure(address, "the response is not that of a Chronik node")
    text = body.decode(errors="replace") if status == HTTPStatus.OK else ""
    return NodePages(address, status_json, sum_metrics(text), text, asked_ms, answered_ms)
