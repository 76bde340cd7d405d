"""Collects the samples of all metric families from a node's components, over several event-loop iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from chronik.console.metrics.cutting import HISTOGRAM_SERIES, OTHER, Cut, is_summed_up, shared_out
from chronik.console.metrics.pace import Pace
from chronik.console.metrics.plain import Metered, plain_metrics
from chronik.console.metrics.survey import Lag, Steps, Survey, Surveyor, TopicSums
from chronik.console.metrics.table import FAMILIES, HISTOGRAM, told
from chronik.console.source import Metric, Sample

K = TypeVar("K")
V = TypeVar("V")

SERIES_MAX: Final = "chronik.metrics.series.max"

SURVEYED: Final[Mapping[str, Callable[[Survey], int]]] = {
    "chronik_partitions": lambda survey: survey.partitions,
    "chronik_leader_partitions": lambda survey: survey.led,
    "chronik_under_replicated_partitions": lambda survey: survey.under_replicated,
    "chronik_under_min_isr_partitions": lambda survey: survey.under_min_isr,
    "chronik_offline_partitions": lambda survey: survey.offline,
    "chronik_replica_lag_records_max": lambda survey: survey.replica_lag,
    "chronik_damaged_partitions": lambda survey: survey.damaged,
}
TOPICS: Final[Mapping[str, Callable[[TopicSums], float]]] = {
    "chronik_topic_log_bytes": lambda sums: sums.log_bytes,
    "chronik_topic_partitions": lambda sums: sums.partitions,
    "chronik_topic_produced_bytes_total": lambda sums: sums.produced_bytes,
}
LAGS: Final[Mapping[str, Callable[[Lag], float]]] = {
    "chronik_group_lag_records": lambda lag: lag.records,
    "chronik_group_lag_seconds": lambda lag: lag.seconds,
}
ABOUT: Final = ("chronik_metrics_series", "chronik_metrics_series_left_out", "chronik_metrics_survey_seconds")


class Metrics:
    """The metrics of a node."""

    def __init__(self, parts: Metered) -> None:
        self._parts = parts
        services = parts.services
        self._surveyor = Surveyor(services.store, services.replicas, services.clock)

    def survey(self) -> Steps[Survey]:
        """Return the statistics of partitions and group lags; see `PartitionStatsCollector.collect`."""
        return self._surveyor.look()

    def all(self) -> Iterator[Metric | None]:
        """Yield all metric families. A None tells the caller to continue in the next event-loop iteration."""
        series = len(SURVEYED) + len(ABOUT)
        for metric in plain_metrics(self._parts):
            samples = list(metric.samples)
            series += len(samples) * (HISTOGRAM_SERIES if metric.kind == HISTOGRAM else 1)
            yield metric._replace(samples=samples)
        yield None
        survey = yield from self._surveyor.look()
        for name, value in SURVEYED.items():
            yield told(name, value(survey))
        yield from cut_metrics(survey, series, self._parts.services.configs.broker_int(SERIES_MAX))


def cut_metrics(survey: Survey, series: int, series_max: int) -> Iterator[Metric | None]:
    """Yield the families with a series per topic or group, and the metrics about the metrics.

    Series beyond `series_max`, including the `series` of all other families, are aggregated. None ends an iteration.
    """
    room = shared_out(series_max - series, len(survey.topics), len(TOPICS), len(survey.lags), len(LAGS))
    topics = Cut(survey.topics, room.topics, lambda sums: sums.log_bytes, _add_topic, TopicSums(), is_summed_up)
    lags = Cut(survey.lags, room.lags, lambda lag: lag.records, _add_lag, Lag(), lambda key: is_summed_up(*key))
    pace = Pace()
    yield from pace.over(topics.steps())
    yield from pace.over(lags.steps())
    yield None
    for name, topic_value in TOPICS.items():
        yield FAMILIES[name].of(_samples(topics, OTHER, lambda topic: {"topic": topic}, topic_value))
    for name, lag_value in LAGS.items():
        yield FAMILIES[name].of(_samples(lags, (OTHER, OTHER), _lag_labels, lag_value))
    rows = (len(topics.told) + bool(topics.left_out), len(lags.told) + bool(lags.left_out))
    left_out = topics.left_out * len(TOPICS) + lags.left_out * len(LAGS)
    about = (series + rows[0] * len(TOPICS) + rows[1] * len(LAGS), left_out, survey.loop_seconds)
    for name, number in zip(ABOUT, about, strict=True):
        yield told(name, number)


def _samples(
    cut: Cut[K, V], other: K, labels: Callable[[K], dict[str, str]], value: Callable[[V], float]
) -> Iterator[Sample]:
    for key, row in cut.told:
        yield Sample(value(row), labels(key))
    if cut.left_out:
        yield Sample(value(cut.rest), labels(other))


def _lag_labels(key: tuple[str, str]) -> dict[str, str]:
    return {"group": key[0], "topic": key[1]}


def _add_topic(rest: TopicSums, row: TopicSums) -> None:
    rest.log_bytes += row.log_bytes
    rest.partitions += row.partitions
    rest.produced_bytes += row.produced_bytes


def _add_lag(rest: Lag, row: Lag) -> None:
    rest.records += row.records
    rest.seconds = max(rest.seconds, row.seconds)
