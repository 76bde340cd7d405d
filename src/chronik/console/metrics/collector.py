"""Collects the samples of all metric families from a node's components, over several event-loop iterations.

The number of series is limited: every series costs memory wherever it is collected, and clients can create any number
of topics and groups. Only the largest get series of their own; the others are aggregated under the label "_other".
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from chronik.console.metrics.counters import MetricSources, iter_counter_metrics
from chronik.console.metrics.families import FAMILIES, HISTOGRAM, build_single_sample_metric
from chronik.console.metrics.partition_stats import (
    CollectionSteps,
    ComputationSlicer,
    GroupTopicLag,
    PartitionStats,
    PartitionStatsCollector,
    TopicTotals,
)
from chronik.console.status_source import Metric, Sample
from chronik.histogram import LATENCY_SECONDS

K = TypeVar("K")
V = TypeVar("V")

OTHER: Final = "_other"
"""Label value of the time series that aggregates the topics or groups without a time series of their own."""

NAME_CHARACTERS_MAX: Final = 255
"""Maximum length of a topic or group name in a label. Groups with longer names, which Kafka allows, are aggregated into
one series."""

HISTOGRAM_SERIES: Final = len(LATENCY_SECONDS) + 3
"""Number of time series of a latency histogram: its buckets, the +Inf bucket, the sum and the count."""

SERIES_MAX: Final = "chronik.metrics.series.max"

PARTITION_METRICS: Final[Mapping[str, Callable[[PartitionStats], int]]] = {
    "chronik_partitions": lambda survey: survey.partitions,
    "chronik_leader_partitions": lambda survey: survey.leader_partitions,
    "chronik_under_replicated_partitions": lambda survey: survey.under_replicated,
    "chronik_under_min_isr_partitions": lambda survey: survey.under_min_isr,
    "chronik_offline_partitions": lambda survey: survey.offline,
    "chronik_replica_lag_records_max": lambda survey: survey.replica_lag,
    "chronik_damaged_partitions": lambda survey: survey.damaged,
}
TOPIC_METRICS: Final[Mapping[str, Callable[[TopicTotals], float]]] = {
    "chronik_topic_log_bytes": lambda sums: sums.log_bytes,
    "chronik_topic_partitions": lambda sums: sums.partitions,
    "chronik_topic_produced_bytes_total": lambda sums: sums.produced_bytes,
}
LAG_METRICS: Final[Mapping[str, Callable[[GroupTopicLag], float]]] = {
    "chronik_group_lag_records": lambda lag: lag.records,
    "chronik_group_lag_seconds": lambda lag: lag.seconds,
}
SELF_METRICS: Final = ("chronik_metrics_series", "chronik_metrics_series_left_out", "chronik_metrics_survey_seconds")


def is_aggregated(*names: str) -> bool:
    """Return whether a topic or group name is always exported in the aggregated time series, never in its own."""
    return OTHER in names or any(len(name) > NAME_CHARACTERS_MAX for name in names)


class SeriesBudget(NamedTuple):
    """How many topics and how many group lags get their own Prometheus time series."""

    topics: int
    lags: int


def divide_series(series: int, topics: int, topic_families: int, lags: int, lag_families: int) -> SeriesBudget:
    """Divide the maximum number of time series between topics and group lags, half each unless one needs less."""
    series = max(series, 0)
    topic_series = min(topics * topic_families, max(series // 2, series - lags * lag_families))
    return SeriesBudget(topic_series // topic_families, (series - topic_series) // lag_families)


class LargestRowSelection(Generic[K, V]):
    """The rows with the largest values of a mapping, and the sum of all other rows."""

    def __init__(
        self,
        rows: Mapping[K, V],
        rows_max: int,
        size: Callable[[V], float],
        add: Callable[[V, V], None],
        rest: V,
        is_aggregated: Callable[[K], bool],
    ) -> None:
        """Create the selection. `rest` is the initial sum of the other rows; `add` adds a row to it."""
        self.selected: list[tuple[K, V]] = []
        self.aggregate = rest
        self.aggregated_count = 0
        self._rows = rows
        self._limit = rows_max
        self._size = size
        self._add = add
        self._is_other = is_aggregated

    def iter_selection_steps(self) -> Iterator[None]:
        """Select the rows with the largest values and sum up the others, yielding after each row so that the caller can
        pause.
        """
        heap: list[tuple[float, int]] = []  # A min-heap of (size, -row number): keys may not be comparable.
        limit = self._limit if len(self._rows) <= self._limit else max(self._limit - 1, 0)
        for number, (key, value) in enumerate(self._rows.items()):
            if not self._is_other(key):
                entry = self._size(value), -number
                if len(heap) < limit:
                    heapq.heappush(heap, entry)
                elif limit:
                    heapq.heappushpop(heap, entry)
            yield
        numbers = {-number for _, number in heap}
        for number, (key, value) in enumerate(self._rows.items()):
            if number in numbers:
                self.selected.append((key, value))
            else:
                self._add(self.aggregate, value)
                self.aggregated_count += 1
            yield


class MetricsCollector:
    """A collector of all Prometheus metrics that a node exports at `/metrics`."""

    def __init__(self, parts: MetricSources) -> None:
        self._parts = parts
        services = parts.services
        self._surveyor = PartitionStatsCollector(services.store, services.replicas, services.clock)

    def partition_stats(self) -> CollectionSteps[PartitionStats]:
        """Return the statistics of partitions and group lags; see `PartitionStatsCollector.collect`."""
        return self._surveyor.collect()

    def collect(self) -> Iterator[Metric | None]:
        """Yield all Prometheus metric families. Yield None where the caller must let the event loop run."""
        series = len(PARTITION_METRICS) + len(SELF_METRICS)
        for metric in iter_counter_metrics(self._parts):
            samples = list(metric.samples)
            series += len(samples) * (HISTOGRAM_SERIES if metric.kind == HISTOGRAM else 1)
            yield metric._replace(samples=samples)
        yield None
        survey = yield from self._surveyor.collect()
        for name, value in PARTITION_METRICS.items():
            yield build_single_sample_metric(name, value(survey))
        yield from iter_limited_metrics(survey, series, self._parts.services.configs.broker_int(SERIES_MAX))


def iter_limited_metrics(survey: PartitionStats, series: int, series_max: int) -> Iterator[Metric | None]:
    """Yield the metrics per topic and per group, limited to a maximum number of time series.

    Series beyond `series_max`, including the `series` of all other families, are aggregated. None ends an iteration.
    """
    limits = divide_series(
        series_max - series, len(survey.topics), len(TOPIC_METRICS), len(survey.lags), len(LAG_METRICS)
    )
    topics = LargestRowSelection(
        survey.topics, limits.topics, lambda sums: sums.log_bytes, _add_topic_totals, TopicTotals(), is_aggregated
    )
    lags = LargestRowSelection(
        survey.lags,
        limits.lags,
        lambda lag: lag.records,
        _add_group_lag,
        GroupTopicLag(),
        lambda key: is_aggregated(*key),
    )
    pace = ComputationSlicer()
    yield from pace.run(topics.iter_selection_steps())
    yield from pace.run(lags.iter_selection_steps())
    yield None
    for name, topic_value in TOPIC_METRICS.items():
        yield FAMILIES[name].with_samples(_build_samples(topics, OTHER, lambda topic: {"topic": topic}, topic_value))
    for name, lag_value in LAG_METRICS.items():
        yield FAMILIES[name].with_samples(_build_samples(lags, (OTHER, OTHER), _build_lag_labels, lag_value))
    rows = (len(topics.selected) + bool(topics.aggregated_count), len(lags.selected) + bool(lags.aggregated_count))
    left_out = topics.aggregated_count * len(TOPIC_METRICS) + lags.aggregated_count * len(LAG_METRICS)
    about = (series + rows[0] * len(TOPIC_METRICS) + rows[1] * len(LAG_METRICS), left_out, survey.loop_seconds)
    for name, number in zip(SELF_METRICS, about, strict=True):
        yield build_single_sample_metric(name, number)


def _build_samples(
    cut: LargestRowSelection[K, V], other: K, labels: Callable[[K], dict[str, str]], value: Callable[[V], float]
) -> Iterator[Sample]:
    for key, row in cut.selected:
        yield Sample(value(row), labels(key))
    if cut.aggregated_count:
        yield Sample(value(cut.aggregate), labels(other))


def _build_lag_labels(key: tuple[str, str]) -> dict[str, str]:
    return {"group": key[0], "topic": key[1]}


def _add_topic_totals(rest: TopicTotals, row: TopicTotals) -> None:
    rest.log_bytes += row.log_bytes
    rest.partitions += row.partitions
    rest.produced_bytes += row.produced_bytes


def _add_group_lag(rest: GroupTopicLag, row: GroupTopicLag) -> None:
    rest.records += row.records
    rest.seconds = max(rest.seconds, row.seconds)
