"""Lookup of a subscription's partitions and of their offsets, as a reader of a given isolation level sees them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from chronik.client.cluster import ClusterClient
from chronik.client.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets
from chronik.client.records import TopicPartition
from chronik.pipeline.errors import OptionError
from chronik.pipeline.source.offset_ranges import Offsets
from chronik.pipeline.source.options import IsolationLevel, OffsetBound, Subscription

NO_MATCHING_OFFSET: Final = -1
"""The offset in a ListOffsets response if no record has this or a later timestamp."""


class OffsetResolver:
    """A resolver of subscriptions and offset bounds. It always asks the brokers, since partitions may change."""

    def __init__(self, cluster: ClusterClient, isolation: IsolationLevel) -> None:
        self._cluster = cluster
        self._isolation = isolation

    def partitions(self, subscription: Subscription) -> list[TopicPartition]:
        """Return the partitions of a subscription, sorted.

        Raises:
            KafkaError: A subscribed topic does not exist.
        """
        if subscription.partitions:
            return sorted(subscription.partitions)
        self._cluster.invalidate_metadata()
        topics: Iterable[str] = subscription.topics
        if subscription.pattern is not None:
            topics = self._find_matching_topics(subscription.pattern)
        found: list[TopicPartition] = []
        for topic in dict.fromkeys(topics):
            found += self._cluster.retry(lambda name=topic: self._cluster.partitions(name))  # type: ignore[misc]
        return sorted(found)

    def _find_matching_topics(self, pattern: str) -> list[str]:
        """Return the topics that match a pattern, excluding internal topics as in Spark's Kafka source."""
        response = self._cluster.retry(lambda: self._cluster.metadata(None))
        names = (topic.name for topic in response.topics if topic.name and not topic.is_internal)
        return [name for name in names if re.fullmatch(pattern, name)]

    def fetch_earliest_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self.list_offsets_at(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))

    def fetch_latest_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the high watermarks, or the last stable offsets for read_committed."""
        return self.list_offsets_at(dict.fromkeys(partitions, LATEST_TIMESTAMP))

    def resolve(
        self, bound: OffsetBound, partitions: list[TopicPartition], *, name: str, latest_if_no_timestamp: bool
    ) -> Offsets:
        """Return the offset of each partition for a starting or ending bound; `name` is the option in error messages.

        Raises:
            OptionError: The bound does not name the right partitions, or no record is at or after a timestamp.
        """
        if bound.sentinel is not None:
            return self.list_offsets_at(dict.fromkeys(partitions, bound.sentinel))
        if bound.offsets is not None:
            offsets = _check_partitions(partitions, dict(bound.offsets), f"{name}Offsets")
            special_offsets = {
                each: offset for each, offset in offsets.items() if offset in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
            }
            return offsets | self.list_offsets_at(special_offsets)
        if bound.timestamps_ms is not None:
            timestamps = _check_partitions(partitions, dict(bound.timestamps_ms), f"{name}OffsetsByTimestamp")
        else:
            timestamps = dict.fromkeys(partitions, bound.timestamp_ms or 0)
        return self._fetch_offsets_at_timestamps(timestamps, latest_if_no_timestamp)

    def _fetch_offsets_at_timestamps(self, timestamps: Mapping[TopicPartition, int], latest_if_none: bool) -> Offsets:
        found = self.list_offsets_at(timestamps)
        none = [partition for partition, offset in found.items() if offset == NO_MATCHING_OFFSET]
        if none and not latest_if_none:
            missing = ", ".join(f"{each} at {timestamps[each]} ms" for each in none)
            raise OptionError(
                f"no record at or after the timestamp: {missing}; "
                "set startingOffsetsByTimestampStrategy = latest to start at the end"
            )
        return found | self.fetch_latest_offsets(none)

    def list_offsets_at(self, timestamps: Mapping[TopicPartition, int]) -> Offsets:
        """Return the first offset of each partition at or after its timestamp.

        Raises:
            ClientError, KafkaError: The brokers rejected the request or did not respond.
        """
        return list_offsets(self._cluster, timestamps, self._isolation)


def _check_partitions(partitions: list[TopicPartition], given: Offsets, name: str) -> Offsets:
    if set(given) != set(partitions):
        missing = sorted(set(partitions) - set(given))
        unknown = sorted(set(given) - set(partitions))
        problems = [f"missing {', '.join(map(str, missing))}"] * bool(missing)
        problems += [f"{', '.join(map(str, unknown))} not subscribed"] * bool(unknown)
        raise OptionError(f"{name} must name every subscribed partition exactly once: {'; '.join(problems)}")
    return given
