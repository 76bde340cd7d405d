"""Attacks on exports: large files that clients read slowly, abandon or do not read, from values that are expensive."""

from __future__ import annotations

import http.client
import socket
import threading
from http import HTTPStatus
from typing import Final

from tests.abuse.attack import Attack, AttackTarget
from tests.abuse.message_filters import TOPIC, VALUES, produce_hostile_values

FORMATS: Final = ("jsonl", "csv", "parquet")
ANSWER_SECONDS_MAX: Final = 120.0
PATH: Final = f"/api/v1/topics/{TOPIC}/export?limit=1000000&format="
STALLED: Final = 8
RECEIVE_BUFFER_BYTES: Final = 4096


def export_messages(target: AttackTarget) -> None:
    """Export all messages in each format, while other clients read nothing or disconnect after the first bytes."""
    for number in range(target.count(2, STALLED)):
        target.keep_open(_start(target, FORMATS[number % len(FORMATS)]))
    outcomes: list[tuple[int, int]] = []
    threads = [threading.Thread(target=lambda name=each: outcomes.append(_download(target, name))) for each in FORMATS]
    for thread in threads:
        thread.start()
    for number in range(target.count(3, 60)):
        with _start(target, FORMATS[number % len(FORMATS)]) as client:
            client.recv(1)
    for thread in threads:
        thread.join()
    assert len(outcomes) == len(FORMATS)
    assert {status for status, _ in outcomes} <= {HTTPStatus.OK, HTTPStatus.TOO_MANY_REQUESTS}, outcomes
    for status, size in outcomes:
        assert status != HTTPStatus.OK or size > 0, outcomes
    _check_all_values(target)


def _check_all_values(target: AttackTarget) -> None:
    """Export all messages after the clients that do not read have gone."""
    target.close_kept()
    status, size = _download(target, "jsonl")
    assert status == HTTPStatus.OK
    assert size > sum(map(len, VALUES)) * target.count(1, 10)


def _start(target: AttackTarget, name: str) -> socket.socket:
    """Request an export without reading it."""
    head = f"GET {PATH}{name} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    client = target.open_socket(target.http, head.encode(), ANSWER_SECONDS_MAX)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    return client


def _download(target: AttackTarget, name: str) -> tuple[int, int]:
    """Return the status code and the number of bytes of a complete export."""
    connection = http.client.HTTPConnection(target.http.host, target.http.port, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request("GET", PATH + name)
        target.meter.add(len(PATH))
        response = connection.getresponse()
        return response.status, sum(map(len, iter(lambda: response.read(1 << 16), b"")))
    finally:
        connection.close()


ATTACKS: Final = (
    Attack(
        "http-exports",
        "exports of values of 900 kB in three formats; eight clients read nothing, sixty disconnect",
        export_messages,
        produce_hostile_values,
    ),
)
