"""Partitions without a leader, and unclean leader election for them.

While a member of the ISR may return, waiting loses no records, so the controller waits unless the topic's
`unclean.leader.election.enable` is set. After the last in-sync disk is lost, an operator must decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from chronik.metadata.commands.partitions import PartitionKey
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.elections import elect_unclean_leader
from chronik.metadata.image import Image
from chronik.metadata.names import SYSTEM_TOPICS
from chronik.metadata.records import Partition, Topic


class LeaderlessPartition(msgspec.Struct, frozen=True):
    """A partition that has no leader."""

    topic: Topic
    index: int
    partition: Partition

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.topic.id, self.index)

    @property
    def is_lost(self) -> bool:
        """Whether no disk is left that is known to have all acknowledged records."""
        return not self.partition.isr

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}"


def find_leaderless_partitions(image: Image) -> Iterator[LeaderlessPartition]:
    """Yield the partitions without a leader, except those of system topics (see `system_topics`)."""
    for topic in image.leaderless_topics():
        if topic.name in SYSTEM_TOPICS:
            continue
        for index, partition in enumerate(topic.partitions):
            if partition.leader == NO_LEADER:
                yield LeaderlessPartition(topic, index, partition)


def can_elect_uncleanly(image: Image, leaderless: LeaderlessPartition, is_allowed: Callable[[Topic], bool]) -> bool:
    return is_allowed(leaderless.topic) and elect_unclean_leader(leaderless.partition, image.brokers) != NO_LEADER
