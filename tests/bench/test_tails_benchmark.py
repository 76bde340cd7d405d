"""Limits of round trips: Kafka's longest or 100 ms. Trips during slow disk syncs are counted separately."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from bench.kafka_comparison import RunningServer
from bench.tails import TailsSubject, allowed_ms, build_table, create_subjects, is_met
from chronik.bench.round_trip import TimeSpan, list_slow_syncs, summarize_round_trips
from chronik.broker.flusher import RECENT_SLOW_SYNCS_MAX, SLOW_SYNC_SECONDS, SyncInterval, SyncMetrics
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.config import Address
from chronik.console.http_client import fetch_status, http_get
from chronik.testing import Broker
from chronik.testing.ports import HOST, ReservedPorts

TIMEOUT_SECONDS = 10.0


def trips(*milliseconds: float) -> list[TimeSpan]:
    """Return trips of the given durations, starting one second apart."""
    return [TimeSpan(number, number + each / 1000) for number, each in enumerate(milliseconds)]


def subject(
    *milliseconds: float, nodes: int = 1, is_kafka: bool = False, slow: tuple[TimeSpan, ...] = ()
) -> TailsSubject:
    def start(directory: Path) -> AbstractContextManager[RunningServer]:
        raise AssertionError("not started here")

    name = "Kafka" if is_kafka else "Chronik"
    return TailsSubject(name, nodes, start, is_kafka, trips(*milliseconds), dict.fromkeys(slow))


def test_trips_over_50_and_100_ms_are_counted() -> None:
    result = summarize_round_trips(trips(1, 49, 51, 99, 101), 100)
    assert (result.trips, result.over_50_ms, result.over_100_ms) == (5, 3, 1)
    assert result.latency.max_ms == pytest.approx(101)
    assert (result.beside_slow_syncs, result.max_ms_of_others) == (None, None)


@pytest.mark.parametrize(
    ("sync", "affected"),
    [
        (TimeSpan(0.9, 0.99), 0),
        (TimeSpan(0.9, 1.0), 1),
        (TimeSpan(1.1, 1.15), 1),
        (TimeSpan(0.5, 1.9), 1),
        (TimeSpan(1.2, 1.3), 1),
        (TimeSpan(1.201, 1.3), 0),
        (TimeSpan(0.0, 2.0), 3),
    ],
)
def test_trips_overlapping_slow_syncs_are_counted_separately(sync: TimeSpan, affected: int) -> None:
    result = summarize_round_trips(trips(2, 200, 3), 100, [sync])
    assert result.beside_slow_syncs == affected
    assert result.max_ms_of_others == pytest.approx({0: 200, 1: 3, 3: 0}[affected])


def test_trip_limit_without_kafka_is_100_ms() -> None:
    assert is_met(subject(100.0), [])
    assert not is_met(subject(100.1), [])


def test_trip_limit_is_longest_kafka_trip_of_same_cluster_size() -> None:
    slow, fast = subject(150, is_kafka=True), subject(20, nodes=3, is_kafka=True)
    for nodes, allowed in ((1, 150.0), (3, 100.0)):
        chronik = subject(120, nodes=nodes)
        assert allowed_ms(chronik, [slow, fast, chronik]) == pytest.approx(allowed)
        assert is_met(chronik, [slow, fast, chronik]) is (nodes == 1)


def test_tails_table_marks_missed_limits() -> None:
    measured = [subject(1, 120), subject(1, 120, slow=(TimeSpan(1.0, 1.1),)), subject(1, 90, is_kafka=True)]
    table = build_table(measured)
    assert [row[-1] for row in table.rows] == ["**missed**", "met", None]
    assert [row[table.headings.index("during a slow sync")] for row in table.rows] == [0, 1, None]


def test_tails_subjects_have_kafka_peers_of_same_size() -> None:
    assert [(each.nodes, each.is_kafka) for each in create_subjects(with_kafka=True)] == [
        (1, False), (1, False), (3, False), (3, False), (1, True), (3, True)
    ]  # fmt: skip
    assert not [each for each in create_subjects(with_kafka=False) if each.is_kafka]


def test_slow_syncs_are_counted_and_latest_are_retained() -> None:
    times = SyncMetrics()
    times.add(SyncInterval(0.0, SLOW_SYNC_SECONDS))
    assert (times.count, times.slow_count) == (1, 0)
    for number in range(RECENT_SLOW_SYNCS_MAX + 1):
        times.add(SyncInterval(number, number + 0.06))
    assert (times.count, times.slow_count) == (RECENT_SLOW_SYNCS_MAX + 2, RECENT_SLOW_SYNCS_MAX + 1)
    view = times.to_json()
    assert len(view["recent_slow"]) == RECENT_SLOW_SYNCS_MAX
    assert view["recent_slow"][0] == [1, 1.06]
    assert view["longest_ms"] == pytest.approx(60)


@pytest.mark.slow
def test_node_status_and_metrics_report_sync_times() -> None:
    reserved = ReservedPorts(1)
    http = Address(HOST, reserved.ports[0])
    with Broker(http=str(http)) as broker, broker.cluster() as cluster:
        broker.create_topic("synced")
        before = fetch_status(http, TIMEOUT_SECONDS)["syncs"]
        Producer(cluster).send("synced", [OutgoingRecord(b"value")])
        after = fetch_status(http, TIMEOUT_SECONDS)["syncs"]
        assert after["count"] > before["count"]
        assert after["longest_ms"] > 0
        assert len(list_slow_syncs([http])) >= len(after["recent_slow"])
        _, page = http_get(http, "/metrics", TIMEOUT_SECONDS)
    reserved.release()
    for name in (b"chronik_syncs_total", b"chronik_slow_syncs_total", b"chronik_longest_sync_seconds"):
        assert b"\n" + name + b" " in page
