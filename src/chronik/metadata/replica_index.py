"""An index of the topics that have replicas on each broker, and of the topics with leaderless partitions.

The index is updated with every partition change, so that work on one broker need not scan all partitions. It counts per
topic, because an index of partitions would take as much memory as the partitions themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from chronik.errors import check_invariant
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Partition

Counts = dict[bytes, int]
"""The number of matching partitions by topic id; topics without any are omitted."""


class ReplicaIndex:
    """The topics hosted by each broker, and the topics with leaderless partitions."""

    def __init__(self) -> None:
        self._hosted: dict[int, Counts] = {}
        self._leaderless: Counts = {}

    def topics_on_broker(self, broker_id: int) -> list[bytes]:
        """Return the topics that have a replica on the broker, in sync or not."""
        return list(self._hosted.get(broker_id, ()))

    def replica_count(self, broker_id: int) -> int:
        return sum(self._hosted.get(broker_id, {}).values())

    def leaderless_topics(self) -> list[bytes]:
        """Return the topics that have a partition without a leader."""
        return list(self._leaderless)

    def add(self, topic_id: bytes, partitions: Sequence[Partition]) -> None:
        self._count(topic_id, partitions, 1)

    def remove(self, topic_id: bytes, partitions: Sequence[Partition]) -> None:
        self._count(topic_id, partitions, -1)

    def update(self, topic_id: bytes, old: Partition, new: Partition) -> None:
        """Update the counts for a changed partition."""
        # Most changes keep the replicas, and with them the same tuple.
        if old.replicas is not new.replicas and old.replicas != new.replicas:
            self._count_replicas(topic_id, (old,), -1)
            self._count_replicas(topic_id, (new,), 1)
        is_leaderless = new.leader == NO_LEADER
        if is_leaderless != (old.leader == NO_LEADER):
            _add(self._leaderless, topic_id, 1 if is_leaderless else -1)

    def _count(self, topic_id: bytes, partitions: Sequence[Partition], sign: int) -> None:
        self._count_replicas(topic_id, partitions, sign)
        leaderless = sum(partition.leader == NO_LEADER for partition in partitions)
        if leaderless:
            _add(self._leaderless, topic_id, sign * leaderless)

    def _count_replicas(self, topic_id: bytes, partitions: Sequence[Partition], sign: int) -> None:
        for broker_id, count in Counter(chain.from_iterable(each.replicas for each in partitions)).items():
            _add(self._hosted.setdefault(broker_id, {}), topic_id, sign * count)


def _add(counts: Counts, topic_id: bytes, by: int) -> None:
    count = counts.get(topic_id, 0) + by
    check_invariant(count >= 0, "a partition was removed that was never counted")
    if count:
        counts[topic_id] = count
    else:
        del counts[topic_id]
