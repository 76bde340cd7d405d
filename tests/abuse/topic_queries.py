"""Attacks on pages of topics: statistics of many records, consumers among many groups, and lists sorted by size."""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import Final

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.groups import commit_offsets
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.console.http_client import http_get
from tests.abuse.attack import Attack, AttackTarget

TOPIC: Final = "measured"
PARTITIONS: Final = 4
KEY_BYTES: Final = 1_000
ANSWER_SECONDS_MAX: Final = 120.0
SCAN_SECONDS: Final = 10
THREADS: Final = 6

STATISTICS: Final = (
    f"/topics/{TOPIC}/statistics?max_messages=10000000&max_seconds={SCAN_SECONDS}",
    f"/topics/{TOPIC}/statistics?from=-9223372036854775807&max_seconds={SCAN_SECONDS}",
    f"/topics/{TOPIC}/statistics?from=@0&partition=3&max_seconds={SCAN_SECONDS}",
)
LISTS: Final = (
    f"/topics/{TOPIC}/consumers?limit=500",
    f"/topics/{TOPIC}/consumers?search={'x' * 500}",
    "/topics?sort=bytes&descending=true&limit=500&internal=true",
    "/topics?sort=messages&limit=1",
    "/topics?sort=status&after=999999999",
    f"/topics/{TOPIC}/placement?nodes=1&replication_factor=1",
    f"/topics/{TOPIC}/placement?nodes={','.join(['1'] * 100)}&replication_factor=100",
    f"/permissions?subject={'x' * 500}",
)


def produce_large_keys(target: AttackTarget) -> None:
    with ClusterClient(target.victim.bootstrap, client_id="abuse") as client:
        create_topics(client, [NewTopic(TOPIC, PARTITIONS)])
        producer = Producer(client)
        for first in range(0, target.count(1_000, 100_000), 500):
            keys = [b"%d" % number * (KEY_BYTES // 4) for number in range(first, first + 500)]
            producer.send(TOPIC, [OutgoingRecord(b"", key=key, partition=len(key) % PARTITIONS) for key in keys])


def create_groups(target: AttackTarget) -> None:
    with ClusterClient(target.victim.bootstrap, client_id="abuse") as client:
        create_topics(client, [NewTopic(TOPIC, PARTITIONS)])
        create_topics(client, [NewTopic(f"other-{number}", 10) for number in range(target.count(10, 800))])
        offsets = {TopicPartition(TOPIC, index): 0 for index in range(PARTITIONS)}
        for number in range(target.count(20, 2_000)):
            commit_offsets(client, f"group-{number}", offsets)


def request_statistics(target: AttackTarget) -> None:
    """Compute statistics on several connections. Each must get a result, or a rejection if too many are running."""
    _request(target, STATISTICS, {HTTPStatus.OK, HTTPStatus.TOO_MANY_REQUESTS})


def request_lists(target: AttackTarget) -> None:
    """List consumers, sorted topics and plans on several connections. Each must get a response or a rejection."""
    _request(target, LISTS, {HTTPStatus.OK, HTTPStatus.BAD_REQUEST, HTTPStatus.TOO_MANY_REQUESTS})


def _request(target: AttackTarget, paths: tuple[str, ...], expected: set[HTTPStatus]) -> None:
    def run() -> None:
        for path in paths:
            status, _ = http_get(target.http, f"/api/v1{path}", ANSWER_SECONDS_MAX)
            target.meter.add(len(path))
            statuses.append(status)

    statuses: list[int] = []
    threads = [threading.Thread(target=run) for _ in range(target.count(2, THREADS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == len(threads) * len(paths)
    assert HTTPStatus.OK in statuses
    assert set(statuses) <= expected, statuses


ATTACKS: Final = (
    Attack(
        "http-topic-statistics",
        "statistics of 100,000 records with keys of 1 kB on six connections",
        request_statistics,
        produce_large_keys,
    ),
    Attack(
        "http-topic-lists",
        "consumers of a topic among 2,000 groups, 800 topics sorted by size, and placement plans on six connections",
        request_lists,
        create_groups,
    ),
)
