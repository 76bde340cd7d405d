from __future__ import annotations

import random

import pytest

from chronik.console.metrics.collector import limited_metrics
from chronik.console.metrics.partition_stats import GroupTopicLag, PartitionStats, TopicTotals
from chronik.console.metrics.series_limit import HISTOGRAM_SERIES, OTHER, divide_series
from chronik.console.prometheus import format_exposition
from chronik.console.status_source import Metric, Sample
from chronik.histogram import Histogram
from tests.console.metrics.scraped_node import ScrapedMetrics


def limit_series(stats: PartitionStats, series_max: int, series: int = 100) -> ScrapedMetrics:
    return ScrapedMetrics(format_exposition(limited_metrics(stats, series, series_max)))


def build_stats(topics: int, lags: int) -> PartitionStats:
    stats = PartitionStats()
    for number in random.Random(topics).sample(range(topics), topics):
        stats.topics[f"t{number}"] = TopicTotals(log_bytes=number, partitions=1, produced_bytes=2 * number)
    for number in range(lags):
        stats.lags[f"g{number}", "t1"] = GroupTopicLag(number, number / 10)
    return stats


def test_all_series_are_exported_below_limit() -> None:
    scraped = limit_series(build_stats(50, 20), 1000)
    assert len(scraped.values["chronik_topic_log_bytes"]) == 50
    assert len(scraped.values["chronik_group_lag_records"]) == 20
    assert scraped.value("chronik_metrics_series_left_out") == 0
    assert scraped.value("chronik_metrics_series") == 100 + 50 * 3 + 20 * 2


def test_largest_rows_are_exported_and_rest_aggregated() -> None:
    scraped = limit_series(build_stats(1000, 500), 700)
    sizes = scraped.values_by_label("chronik_topic_log_bytes", "topic")
    assert len(sizes) == 100, "half of 600 series, three per topic"
    assert sizes.keys() == {f"t{number}" for number in range(901, 1000)} | {OTHER}
    assert sizes[OTHER] == sum(range(901))
    assert scraped.values_by_label("chronik_topic_partitions", "topic")[OTHER] == 901
    assert sum(scraped.values_by_label("chronik_topic_produced_bytes_total", "topic").values()) == 2 * sum(range(1000))
    lags = scraped.values_by_label("chronik_group_lag_records", "group")
    assert len(lags) == 150
    assert sum(lags.values()) == sum(range(500))
    assert scraped.value("chronik_group_lag_seconds", group=OTHER, topic=OTHER) == 35.0, (
        "the maximum of the aggregated lags"
    )
    assert scraped.value("chronik_metrics_series_left_out") == 901 * 3 + 351 * 2
    assert scraped.value("chronik_metrics_series") == 700


@pytest.mark.parametrize(
    ("topics", "lags", "budget"), [(10_000, 10, (60, 10)), (10, 10_000, (10, 85)), (0, 10_000, (0, 100))]
)
def test_unused_series_budget_goes_to_other_family(topics: int, lags: int, budget: tuple[int, int]) -> None:
    assert divide_series(200, topics, 3, lags, 2) == budget


def test_everything_is_aggregated_without_series_budget() -> None:
    for series_max in (0, 50, 100, 104):
        scraped = limit_series(build_stats(5, 5), series_max)
        assert scraped.values_by_label("chronik_topic_log_bytes", "topic") == {OTHER: 10}
        assert scraped.values_by_label("chronik_group_lag_records", "group") == {OTHER: 10}


def test_topic_named_other_is_aggregated() -> None:
    stats = build_stats(3, 0)
    stats.topics[OTHER] = TopicTotals(log_bytes=100)
    stats.lags[OTHER, "t1"] = GroupTopicLag(5)
    scraped = limit_series(stats, 1000)
    assert scraped.values_by_label("chronik_topic_log_bytes", "topic") == {"t0": 0, "t1": 1, "t2": 2, OTHER: 100}
    assert scraped.value("chronik_group_lag_records", group=OTHER, topic=OTHER) == 5


def test_overlong_names_are_aggregated() -> None:
    stats = build_stats(1, 1)
    stats.lags["g" * 255, "t1"] = GroupTopicLag(1)
    stats.lags["g" * 256, "t1"] = GroupTopicLag(5)
    stats.lags["h" * 30_000, "t1"] = GroupTopicLag(2)
    scraped = limit_series(stats, 1000)
    assert scraped.values_by_label("chronik_group_lag_records", "group") == {"g0": 0, "g" * 255: 1, OTHER: 7}
    assert scraped.value("chronik_metrics_series_left_out") == 4


def test_histogram_series_count_matches_exposition() -> None:
    text = format_exposition([Metric("a", "histogram", "A.", [Sample(Histogram())])])
    assert ScrapedMetrics(text).series == HISTOGRAM_SERIES
