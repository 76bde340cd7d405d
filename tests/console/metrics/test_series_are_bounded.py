from __future__ import annotations

import random

import pytest

from chronik.console.metrics.cutting import HISTOGRAM_SERIES, OTHER, shared_out
from chronik.console.metrics.made import cut_metrics
from chronik.console.metrics.survey import Lag, Survey, TopicSums
from chronik.console.prometheus import exposition
from chronik.console.source import Metric, Sample
from chronik.meters import Histogram
from tests.console.metrics.nodes import Scraped


def cut(survey: Survey, series_max: int, series: int = 100) -> Scraped:
    return Scraped(exposition(cut_metrics(survey, series, series_max)))


def survey_of(topics: int, lags: int) -> Survey:
    survey = Survey()
    for number in random.Random(topics).sample(range(topics), topics):
        survey.topics[f"t{number}"] = TopicSums(log_bytes=number, partitions=1, produced_bytes=2 * number)
    for number in range(lags):
        survey.lags[f"g{number}", "t1"] = Lag(number, number / 10)
    return survey


def test_while_there_is_room_everything_is_told() -> None:
    told = cut(survey_of(50, 20), 1000)
    assert len(told.values["chronik_topic_log_bytes"]) == 50
    assert len(told.values["chronik_group_lag_records"]) == 20
    assert told.value("chronik_metrics_series_left_out") == 0
    assert told.value("chronik_metrics_series") == 100 + 50 * 3 + 20 * 2


def test_the_largest_are_told_and_the_rest_in_sum() -> None:
    told = cut(survey_of(1000, 500), 700)
    sizes = told.labelled("chronik_topic_log_bytes", "topic")
    assert len(sizes) == 100, "half of 600 series, of which a topic has three"
    assert sizes.keys() == {f"t{number}" for number in range(901, 1000)} | {OTHER}
    assert sizes[OTHER] == sum(range(901))
    assert told.labelled("chronik_topic_partitions", "topic")[OTHER] == 901
    assert sum(told.labelled("chronik_topic_produced_bytes_total", "topic").values()) == 2 * sum(range(1000))
    lags = told.labelled("chronik_group_lag_records", "group")
    assert len(lags) == 150
    assert sum(lags.values()) == sum(range(500))
    assert told.value("chronik_group_lag_seconds", group=OTHER, topic=OTHER) == 35.0, "the largest of the rest"
    assert told.value("chronik_metrics_series_left_out") == 901 * 3 + 351 * 2
    assert told.value("chronik_metrics_series") == 700


@pytest.mark.parametrize(
    ("topics", "lags", "room"), [(10_000, 10, (60, 10)), (10, 10_000, (10, 85)), (0, 10_000, (0, 100))]
)
def test_what_one_kind_does_not_need_the_other_may_have(topics: int, lags: int, room: tuple[int, int]) -> None:
    assert shared_out(200, topics, 3, lags, 2) == room


def test_without_room_all_is_one_series() -> None:
    for series_max in (0, 50, 100, 104):
        told = cut(survey_of(5, 5), series_max)
        assert told.labelled("chronik_topic_log_bytes", "topic") == {OTHER: 10}
        assert told.labelled("chronik_group_lag_records", "group") == {OTHER: 10}


def test_a_topic_that_is_called_like_the_rest_is_part_of_it() -> None:
    survey = survey_of(3, 0)
    survey.topics[OTHER] = TopicSums(log_bytes=100)
    survey.lags[OTHER, "t1"] = Lag(5)
    told = cut(survey, 1000)
    assert told.labelled("chronik_topic_log_bytes", "topic") == {"t0": 0, "t1": 1, "t2": 2, OTHER: 100}
    assert told.value("chronik_group_lag_records", group=OTHER, topic=OTHER) == 5


def test_names_that_are_too_long_for_a_label_are_summed_up() -> None:
    survey = survey_of(1, 1)
    survey.lags["g" * 255, "t1"] = Lag(1)
    survey.lags["g" * 256, "t1"] = Lag(5)
    survey.lags["h" * 30_000, "t1"] = Lag(2)
    told = cut(survey, 1000)
    assert told.labelled("chronik_group_lag_records", "group") == {"g0": 0, "g" * 255: 1, OTHER: 7}
    assert told.value("chronik_metrics_series_left_out") == 4


def test_a_histogram_has_as_many_series_as_are_counted_for_it() -> None:
    text = exposition([Metric("a", "histogram", "A.", [Sample(Histogram())])])
    assert Scraped(text).series == HISTOGRAM_SERIES
