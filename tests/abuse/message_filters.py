"""Attacks on the message browser: filters that are expensive to evaluate, on values that are expensive to decode."""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.console.http_client import http_get
from tests.abuse.attack import Attack, AttackTarget

TOPIC: Final = "hostile-values"
VALUE_BYTES: Final = 900_000
ANSWER_SECONDS_MAX: Final = 60.0
THREADS: Final = 4

VALUES: Final = (
    b"[" * VALUE_BYTES,
    b"[" + b"1," * (VALUE_BYTES // 2) + b"1]",
    b'{"a":' * (VALUE_BYTES // 6) + b"1" + b"}" * (VALUE_BYTES // 6),
    b'"' + b"\\u00fc" * (VALUE_BYTES // 6) + b'"',
    b'{"n":' + b"9" * VALUE_BYTES + b"}",
    "\u1e9e".encode() * (VALUE_BYTES // 3),
    b'{"text":"' + b"\\" * VALUE_BYTES + b'"}',
)

QUERIES: Final = (
    {"where": "$[*][*][*] = 1 or $[*] > 5"},
    {"where": "$" + ".a" * 240 + " = 1"},
    {"where": "not " * 29 + "$.n < 1e300"},
    {"text": "üß" * 100},
    {"text": "s" * 499 + "t"},
    {"where": '$ contains "\u1e9e" or value contains "ss" or $.text contains \\'},
    {"where": "(" * 400},
)


def produce_hostile_values(target: AttackTarget) -> None:
    with ClusterClient(target.victim.bootstrap, client_id="abuse") as client:
        create_topics(client, [NewTopic(TOPIC, 2)])
        producer = Producer(client)
        for number in range(target.count(1, 10) * len(VALUES)):
            producer.send(TOPIC, [OutgoingRecord(VALUES[number % len(VALUES)], partition=number % 2)])


def filter_messages(target: AttackTarget) -> None:
    """Send each query in both orders on several connections. Each must get a page or a reason for its rejection."""

    def run() -> None:
        for query in QUERIES:
            for order, start in (("oldest", "start"), ("newest", "end")):
                path = f"/api/v1/topics/{TOPIC}/messages?{urlencode({**query, 'order': order, 'from': start})}"
                status, _ = http_get(target.http, path, ANSWER_SECONDS_MAX)
                target.meter.add(len(path))
                statuses.append(status)

    statuses: list[int] = []
    threads = [threading.Thread(target=run) for _ in range(target.count(1, THREADS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == len(threads) * len(QUERIES) * 2
    assert set(statuses) == {HTTPStatus.OK, HTTPStatus.BAD_REQUEST}, statuses


ATTACKS: Final = (
    Attack(
        "http-message-filters",
        "conditions and texts that are expensive to search for, in values of 900 kB that are expensive to decode",
        filter_messages,
        produce_hostile_values,
    ),
)
