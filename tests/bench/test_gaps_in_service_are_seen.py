from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest

from chronik.bench.errors import BenchFailed
from chronik.bench.gaps import ServiceWatch, longest_gap
from chronik.bench.main import main
from chronik.client.admin import list_topics
from chronik.testing import Broker

pytestmark = pytest.mark.slow

AWAY_SECONDS = 1.0


@pytest.fixture(scope="module")
def measured() -> Iterator[Broker]:
    with Broker(flush="os") as broker:
        yield broker


def test_the_longest_gap_may_be_at_either_end_or_between() -> None:
    assert longest_gap([1.0, 2.0, 5.0, 6.0], 0.5, 6.5) == 3.0
    assert longest_gap([3.0, 4.0], 0.0, 5.0) == 3.0
    assert longest_gap([1.0, 2.0], 0.0, 9.0) == 7.0
    assert longest_gap([], 1.0, 4.0) == 3.0


def test_what_came_before_and_after_does_not_count() -> None:
    assert longest_gap([0.0, 5.0, 6.0, 20.0], 4.0, 7.0) == 1.0


def test_a_broker_that_stays_leaves_no_gap_worth_telling(capsys: pytest.CaptureFixture[str], measured: Broker) -> None:
    assert main(["gaps", "-b", measured.bootstrap, "--seconds", "2", "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["seconds"] >= 2
    assert seen["acknowledged"] > 20
    assert seen["consumed"] > 20
    assert 0 < seen["longest_without_ack_seconds"] < seen["seconds"]
    assert 0 < seen["longest_without_record_seconds"] < seen["seconds"]
    with measured.cluster() as cluster:
        assert not [topic.name for topic in list_topics(cluster) if "gaps" in (topic.name or "")]


def test_a_broker_that_goes_away_for_a_while_leaves_a_gap_as_long(measured: Broker) -> None:
    measured.create_topic("watched")
    away = threading.Event()
    with ServiceWatch(measured.bootstrap, "watched", 0) as watch:
        measured.pause()
        try:
            away.wait(AWAY_SECONDS)
        finally:
            measured.resume()
        watch.wait_until_served(60)
    seen = watch.seen()
    assert seen.longest_without_ack_seconds >= 0.9 * AWAY_SECONDS
    assert seen.longest_without_record_seconds >= 0.9 * AWAY_SECONDS


def test_a_broker_that_does_not_answer_is_not_waited_for_without_end(measured: Broker) -> None:
    measured.create_topic("silent")
    with ServiceWatch(measured.bootstrap, "silent", 0) as watch:
        measured.pause()
        try:
            with pytest.raises(BenchFailed, match=r"no record came through within 0\.2 s"):
                watch.wait_until_served(0.2)
        finally:
            measured.resume()


def test_records_are_counted_as_they_are_acknowledged_and_read(measured: Broker) -> None:
    measured.create_topic("counted")
    with ServiceWatch(measured.bootstrap, "counted", 0) as watch:
        for _ in range(3):
            watch.wait_until_served(60)
    seen = watch.seen()
    values = [int(record.value or b"") for record in measured.records("counted")]
    assert seen.acknowledged >= 3
    assert len(values) >= seen.acknowledged
    assert all(earlier < later for earlier, later in pairwise(values))
