"""Which partitions there are, and where they begin and end for a reader of some isolation level."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from chronik.client.cluster import Cluster
from chronik.client.offsets import EARLIEST, LATEST, list_offsets
from chronik.client.records import TopicPartition
from chronik.pipeline.errors import OptionError
from chronik.pipeline.reading.options import Bound, IsolationLevel, Subscription
from chronik.pipeline.reading.ranges import Offsets

NO_OFFSET: Final = -1
"""What ListOffsets answers when no record is that young."""


class Positions:
    """Asks a cluster anew each time: what partitions there are changes while a stream runs."""

    def __init__(self, cluster: Cluster, isolation: IsolationLevel) -> None:
        self._cluster = cluster
        self._isolation = isolation

    def partitions(self, subscription: Subscription) -> list[TopicPartition]:
        """Raises KafkaError when a topic that is named does not exist."""
        if subscription.partitions:
            return sorted(subscription.partitions)
        self._cluster.forget()
        topics: Iterable[str] = subscription.topics
        if subscription.pattern is not None:
            topics = self._matching(subscription.pattern)
        found: list[TopicPartition] = []
        for topic in dict.fromkeys(topics):
            found += self._cluster.retrying(lambda name=topic: self._cluster.partitions(name))  # type: ignore[misc]
        return sorted(found)

    def _matching(self, pattern: str) -> list[str]:
        """Internal topics never match, as with Spark's own source."""
        response = self._cluster.retrying(lambda: self._cluster.metadata(None))
        names = (topic.name for topic in response.topics if topic.name and not topic.is_internal)
        return [name for name in names if re.fullmatch(pattern, name)]

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self.list(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Returns the high watermarks; for readers of committed records the last stable offsets."""
        return self.list(dict.fromkeys(partitions, LATEST))

    def resolve(
        self, bound: Bound, partitions: list[TopicPartition], *, name: str, latest_if_no_timestamp: bool
    ) -> Offsets:
        """Returns the offsets that a bound stands for. Raises OptionError, which calls the option `name`."""
        if bound.special is not None:
            return self.list(dict.fromkeys(partitions, bound.special))
        if bound.offsets is not None:
            offsets = _for_exactly(partitions, dict(bound.offsets), f"{name}Offsets")
            asked = {each: offset for each, offset in offsets.items() if offset in (EARLIEST, LATEST)}
            return offsets | self.list(asked)
        if bound.timestamps_ms is not None:
            timestamps = _for_exactly(partitions, dict(bound.timestamps_ms), f"{name}OffsetsByTimestamp")
        else:
            timestamps = dict.fromkeys(partitions, bound.timestamp_ms or 0)
        return self._at_times(timestamps, latest_if_no_timestamp)

    def _at_times(self, timestamps: Mapping[TopicPartition, int], latest_if_none: bool) -> Offsets:
        found = self.list(timestamps)
        none = [partition for partition, offset in found.items() if offset == NO_OFFSET]
        if none and not latest_if_none:
            told = ", ".join(f"{each} at {timestamps[each]} ms" for each in none)
            raise OptionError(
                f"no record is that young: {told}; startingOffsetsByTimestampStrategy = latest would start at the end"
            )
        return found | self.latest(none)

    def list(self, timestamps: Mapping[TopicPartition, int]) -> Offsets:
        """Returns for each partition the first offset at or after its timestamp. Raises ClientError or KafkaError."""
        return list_offsets(self._cluster, timestamps, self._isolation)


def _for_exactly(partitions: list[TopicPartition], given: Offsets, name: str) -> Offsets:
    if set(given) != set(partitions):
        missing = sorted(set(partitions) - set(given))
        unknown = sorted(set(given) - set(partitions))
        faults = [f"no {', '.join(map(str, missing))}"] * bool(missing)
        faults += [f"{', '.join(map(str, unknown))} not among what is read"] * bool(unknown)
        raise OptionError(f"{name} must name every partition once: {'; '.join(faults)}")
    return given
