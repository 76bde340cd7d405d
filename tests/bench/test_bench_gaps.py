from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest

from chronik.bench.errors import BenchmarkError
from chronik.bench.gaps import AvailabilityProbe, longest_gap
from chronik.bench.main import main
from chronik.client.admin import list_topics
from chronik.testing import Broker

pytestmark = pytest.mark.slow

PAUSE_SECONDS = 1.0


@pytest.fixture(scope="module")
def bench_broker() -> Iterator[Broker]:
    with Broker(flush="os") as broker:
        yield broker


def test_longest_gap_includes_start_and_end_of_period() -> None:
    assert longest_gap([1.0, 2.0, 5.0, 6.0], 0.5, 6.5) == 3.0
    assert longest_gap([3.0, 4.0], 0.0, 5.0) == 3.0
    assert longest_gap([1.0, 2.0], 0.0, 9.0) == 7.0
    assert longest_gap([], 1.0, 4.0) == 3.0


def test_longest_gap_ignores_times_outside_period() -> None:
    assert longest_gap([0.0, 5.0, 6.0, 20.0], 4.0, 7.0) == 1.0


def test_gaps_reports_short_gaps_for_healthy_broker(capsys: pytest.CaptureFixture[str], bench_broker: Broker) -> None:
    assert main(["gaps", "-b", bench_broker.bootstrap, "--seconds", "2", "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["seconds"] >= 2
    assert seen["acknowledged"] > 20
    assert seen["consumed"] > 20
    assert 0 < seen["longest_without_ack_seconds"] < seen["seconds"]
    assert 0 < seen["longest_without_record_seconds"] < seen["seconds"]
    with bench_broker.cluster() as cluster:
        assert not [topic.name for topic in list_topics(cluster) if "gaps" in (topic.name or "")]


def test_gaps_measures_duration_of_paused_broker(bench_broker: Broker) -> None:
    bench_broker.create_topic("watched")
    pause_timer = threading.Event()
    with AvailabilityProbe(bench_broker.bootstrap, "watched", 0) as probe:
        bench_broker.pause()
        try:
            pause_timer.wait(PAUSE_SECONDS)
        finally:
            bench_broker.resume()
        probe.wait_until_available(60)
    seen = probe.summarize()
    assert seen.longest_without_ack_seconds >= 0.9 * PAUSE_SECONDS
    assert seen.longest_without_record_seconds >= 0.9 * PAUSE_SECONDS


def test_wait_until_available_times_out_on_paused_broker(bench_broker: Broker) -> None:
    bench_broker.create_topic("silent")
    with AvailabilityProbe(bench_broker.bootstrap, "silent", 0) as probe:
        bench_broker.pause()
        try:
            with pytest.raises(BenchmarkError, match=r"no record was delivered within 0\.2 s"):
                probe.wait_until_available(0.2)
        finally:
            bench_broker.resume()


def test_gaps_counts_acknowledged_and_consumed_records(bench_broker: Broker) -> None:
    bench_broker.create_topic("counted")
    with AvailabilityProbe(bench_broker.bootstrap, "counted", 0) as probe:
        for _ in range(3):
            probe.wait_until_available(60)
    seen = probe.summarize()
    values = [int(record.value or b"") for record in bench_broker.records("counted")]
    assert seen.acknowledged >= 3
    assert len(values) >= seen.acknowledged
    assert all(earlier < later for earlier, later in pairwise(values))
