"""What nodes tell over HTTP, where that can be reached: /status and /metrics, asked of all at once."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from chronik.cli.watching.exposition import Sums, sums
from chronik.config import Address
from chronik.console.ask import NodeSilent, ask

THREADS_MAX: Final = 16

REFUSED: Final = {
    HTTPStatus.UNAUTHORIZED: "it wants a token: set CHRONIK_HTTP_TOKEN",
    HTTPStatus.FORBIDDEN: "it does not let us look",
}


class HttpPort(NamedTuple):
    address: Address
    token: str | None = None
    tls: ssl.SSLContext | None = None


class Page(NamedTuple):
    """What one node told of itself."""

    address: str
    status: Mapping[str, Any]
    metrics: Sums
    metrics_text: str
    asked_ms: float
    """When the question left, by our clock, and when the answer was here."""
    answered_ms: float

    @property
    def node_id(self) -> int:
        return int(self.status["node_id"])

    @property
    def clock_ahead_ms(self) -> float | None:
        """How far its clock is ahead of ours, if it was asked for the time half way; None if it does not tell."""
        told = self.status.get("time_ms")
        return None if told is None else float(told) - (self.asked_ms + self.answered_ms) / 2


class Refusal(NamedTuple):
    address: str
    why: str


def pages_of(ports: Sequence[HttpPort], timeout_s: float) -> tuple[list[Page], list[Refusal]]:
    """Asks all at once, by threads that nobody waits for at the end of the program: whoever leaves has seen enough."""
    answers: list[Page | Refusal] = [Refusal(str(port.address), "it was not asked") for port in ports]

    def ask_of(number: int) -> None:
        answers[number] = page_of(ports[number], timeout_s)

    for start in range(0, len(ports), THREADS_MAX):
        numbers = range(start, min(start + THREADS_MAX, len(ports)))
        threads = [threading.Thread(target=ask_of, args=(number,), daemon=True) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return (
        [each for each in answers if isinstance(each, Page)],
        [each for each in answers if isinstance(each, Refusal)],
    )


def page_of(port: HttpPort, timeout_s: float) -> Page | Refusal:
    address = str(port.address)
    try:
        asked_ms = time.time() * 1000
        status, body = ask(port.address, "/status", timeout_s, port.token, port.tls)
        answered_ms = time.time() * 1000
        if status != HTTPStatus.OK:
            return Refusal(address, REFUSED.get(HTTPStatus(status), f"HTTP status {status}"))
        told = json.loads(body)
        if not isinstance(told, dict) or "node_id" not in told:
            return Refusal(address, "it does not answer as a node of Chronik does")
        status, body = ask(port.address, "/metrics", timeout_s, port.token, port.tls)
    except NodeSilent as error:
        return Refusal(address, str(error))
    except ValueError:
        return Refusal(address, "it does not answer as a node of Chronik does")
    text = body.decode(errors="replace") if status == HTTPStatus.OK else ""
    return Page(address, told, sums(text), text, asked_ms, answered_ms)
