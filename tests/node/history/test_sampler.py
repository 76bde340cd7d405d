"""The sampler on a node: rates, latencies and sizes of real requests, and the interval of expensive samples."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.history.metrics import METRICS_BY_NAME, Scope
from chronik.history.series import RESOLUTIONS, Subject
from chronik.history.store import HistoryQuery
from chronik.node.history import sampler
from tests.api.authorizing_node import AuthorizingNode

TOPIC: Subject = ("orders",)
NODE: Subject = ()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingNode]:
    started = AuthorizingNode(tmp_path_factory.mktemp("node"))
    try:
        yield started
    finally:
        started.close()


def latest(node: AuthorizingNode, metric: str, subject: Subject = NODE) -> float:
    """Return the latest value of the last two minutes."""
    scope = Scope(METRICS_BY_NAME[metric].scope)
    start = node.services.clock.now_ms() // 10_000 - 12
    query = HistoryQuery(scope, (metric,), (subject,), None, None, RESOLUTIONS[0].step_s, start, 13)
    (series,) = node.query_history(query).series
    return [value for value in series.decode() if not math.isnan(value)][-1]


def test_rates_sizes_and_latencies_of_requests_are_sampled(node: AuthorizingNode) -> None:
    with node.all_permitted(), ClusterClient(node.bootstrap) as client:
        Producer(client).send(TOPIC[0], [OutgoingRecord(b"x" * 100)])
        node.sample_history()
        Producer(client).send(TOPIC[0], [OutgoingRecord(b"x" * 100)] * 50)
        node.sample_history()
    assert latest(node, "topic_bytes", TOPIC) == latest(node, "log_bytes") > 5000
    for metric in ("in_bytes", "out_bytes", "requests", "in_records", "produce_p50_ms", "produce_p99_ms", "cpu"):
        assert latest(node, metric) > 0, metric
    records_s, bytes_s = latest(node, "topic_in_records", TOPIC), latest(node, "topic_in_bytes", TOPIC)
    assert latest(node, "in_records") == records_s
    assert 100 < bytes_s / records_s < 150, "both rates have the same duration"
    assert latest(node, "disk_total") > latest(node, "disk_used") > 0


def test_expensive_samples_of_topics_are_taken_less_often(
    node: AuthorizingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "COST_FACTOR", 1e9)
    node.sample_history()
    history = node._node._history
    assert history is not None
    assert history._survey_interval_s == sampler.INTERVAL_MAX_S
