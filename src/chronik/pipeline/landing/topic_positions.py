"""Ids and offsets of all topics of a landing round, requested together: a few requests per broker, not per topic."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chronik.client.cluster import BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN, UNKNOWN_TOPIC_SECONDS_MAX, ClusterClient
from chronik.client.offsets import (
    DELETED_TOPIC_ERRORS,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    READ_COMMITTED,
    list_offsets_of_available,
)
from chronik.client.records import TopicPartition
from chronik.errors import ChronikError
from chronik.ids import format_id
from chronik.pipeline.source.offset_ranges import Offsets
from chronik.protocol.errors import KafkaError

PARTIAL_RETRY_SECONDS_MAX: Final = 5.0
"""Maximum time for which topics without a leader are retried while other topics wait to land."""


@dataclass(frozen=True, slots=True)
class TopicPositions:
    """The id of a topic, and the log start offset and last stable offset of each partition."""

    topic_id: str
    earliest: Offsets
    ends: Offsets


def fetch_topic_positions(
    cluster: ClusterClient, names: Sequence[str]
) -> tuple[dict[str, TopicPositions], dict[str, ChronikError]]:
    """Return the positions of topics, and the errors of topics that are unavailable.

    Retriable errors are retried: for the client's timeout if they affect all topics, else for a few seconds.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request.
    """
    found: dict[str, TopicPositions] = {}
    errors: dict[str, ChronikError] = {}
    started, backoff_s = time.monotonic(), BACKOFF_SECONDS_MIN
    missing = list(names)
    while missing:
        available, failed = cluster.retry(lambda wanted=missing: _fetch_available(cluster, wanted))  # type: ignore[misc]
        found |= available
        errors |= failed
        elapsed_s = time.monotonic() - started
        limit_s = min(PARTIAL_RETRY_SECONDS_MAX, cluster.timeout_s) if found else cluster.timeout_s
        missing = [name for name, error in failed.items() if elapsed_s < _limit_retry_seconds(error, limit_s)]
        if missing:
            time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_SECONDS_MAX)
    return found, {name: error for name, error in errors.items() if name not in found}


def _limit_retry_seconds(error: ChronikError, limit_s: float) -> float:
    if isinstance(error, KafkaError):
        if error.code in DELETED_TOPIC_ERRORS:
            return min(UNKNOWN_TOPIC_SECONDS_MAX, limit_s)
        return limit_s if error.code.retriable else 0.0
    return limit_s


def _fetch_available(
    cluster: ClusterClient, names: Sequence[str]
) -> tuple[dict[str, TopicPositions], dict[str, ChronikError]]:
    cluster.invalidate_metadata()
    errors: dict[str, ChronikError] = {**cluster.refresh_topics(names)}
    partitions = [each for name in names if name not in errors for each in cluster.partitions(name)]
    ends = _list_offsets(cluster, partitions, LATEST_TIMESTAMP, errors)
    earliest = _list_offsets(cluster, partitions, EARLIEST_TIMESTAMP, errors)
    grouped: dict[str, tuple[Offsets, Offsets]] = {name: ({}, {}) for name in names if name not in errors}
    for offsets, index in ((earliest, 0), (ends, 1)):
        for partition, offset in offsets.items():
            if partition.topic in grouped:
                grouped[partition.topic][index][partition] = offset
    ids = {name: format_id(cluster.topic(name).topic_id) for name in grouped}
    return {name: TopicPositions(ids[name], *grouped[name]) for name in grouped}, errors


def _list_offsets(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], timestamp: int, errors: dict[str, ChronikError]
) -> Mapping[TopicPartition, int]:
    """Return the offsets of partitions whose topic has no error, and add the errors of topics."""
    wanted = {each: timestamp for each in partitions if each.topic not in errors}
    offsets, failed = list_offsets_of_available(cluster, wanted, READ_COMMITTED)
    for partition, error in failed.items():
        errors.setdefault(partition.topic, error)
    return offsets


def fetch_topic_ids(cluster: ClusterClient, names: Sequence[str]) -> dict[str, str | None]:
    """Return the current ids of topics, or None for topics that do not exist.

    Raises:
        ClientError: No broker responds.
        KafkaError: A broker rejects a request, or a topic is unavailable.
    """

    def send() -> None:
        cluster.invalidate_metadata()
        errors = cluster.refresh_topics(names)
        for error in sorted(errors.values(), key=lambda error: error.code in DELETED_TOPIC_ERRORS):
            raise error

    try:
        cluster.retry(send)
    except KafkaError as error:
        if error.code not in DELETED_TOPIC_ERRORS:
            raise
    found = cluster.cached_topics
    return {name: format_id(found[name].topic_id) if name in found else None for name in names}
