"""Attacks on the history of metrics: the largest responses and rankings of many topics and groups."""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from chronik.console.http_client import http_get
from chronik.history.metrics import METRICS, Scope
from tests.abuse.attack import Attack, AttackTarget
from tests.abuse.topic_queries import create_groups

ANSWER_SECONDS_MAX: Final = 60.0
THREADS: Final = 6
DAY_SECONDS: Final = 86_400

_NODE_METRICS: Final = [each.name for each in METRICS if each.scope is Scope.NODE]
_RANKED_METRICS: Final = [each.name for each in METRICS if each.scope in (Scope.TOPIC, Scope.GROUP, Scope.GROUP_TOPIC)]

_LARGEST: Final[dict[str, object]] = {"range_s": DAY_SECONDS, "step_s": 1, "limit": 20, "by_node": "true"}
VALID: Final[tuple[dict[str, object], ...]] = (
    {"metrics": ",".join(_NODE_METRICS[:20]), **_LARGEST},
    {"metrics": ",".join(_RANKED_METRICS), **_LARGEST},
    {"metrics": "group_topic_lag", "topic": "x" * 500, **_LARGEST},
    {"metrics": "topic_bytes", "topic": "x" * 500},
    {"metrics": "in_bytes," * 55, "end_ms": 0},
)
INVALID: Final[tuple[dict[str, object], ...]] = (
    {"metrics": "," * 500},
    {"metrics": "x," * 250},
    {"metrics": "cpu", "end_ms": 2**53},
    {"metrics": "cpu", "range_s": 10**30},
    {"metrics": "cpu", "step_s": 0},
    {"metrics": "cpu", "node": 10**9},
)


def request_history(target: AttackTarget) -> None:
    """Request long ranges of all metrics on several connections, mixed with invalid requests."""

    def run() -> None:
        for _ in range(target.count(1, 20)):
            statuses.append([_request(target, query) for query in (*VALID, *INVALID)])

    statuses: list[list[int]] = []
    threads = [threading.Thread(target=run) for _ in range(target.count(2, THREADS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == len(threads) * target.count(1, 20)
    for each in statuses:
        assert set(each[: len(VALID)]) <= {HTTPStatus.OK, HTTPStatus.TOO_MANY_REQUESTS}, each
        assert HTTPStatus.OK not in each[len(VALID) :], each
        assert max(each) < HTTPStatus.INTERNAL_SERVER_ERROR, each
    assert any(HTTPStatus.OK in each for each in statuses)


def _request(target: AttackTarget, query: dict[str, object]) -> int:
    path = f"/api/v1/history?{urlencode(query)}"
    target.meter.add(len(path))
    return http_get(target.http, path, ANSWER_SECONDS_MAX)[0]


ATTACKS: Final = (
    Attack(
        "http-history",
        "24 hours of all metrics, ranked among 800 topics and 2,000 groups, on six connections",
        request_history,
        create_groups,
    ),
)
