"""Commands of topics."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from chronik.metadata.commands.base import Base, BrokerId, Id, Part, PartitionIndex, TimeMs

NO_LEADER: Final = -1
"""A partition whose in-sync replicas are all away."""


TOPICS_PER_COMMAND_MAX: Final = 1000
"""A command is applied in one turn of the loop, at some 8 µs per topic: 1,000 keep it under 10 ms."""


class PartitionAssignment(Part, frozen=True):
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: Annotated[int, Meta(ge=-1, le=2**31 - 1)]


class CreateTopic(Base, frozen=True, tag=20):
    """A topic with its partitions, replicas and leaders, all at once or not at all."""

    topic_id: Id
    name: str
    partitions: tuple[PartitionAssignment, ...]
    configs: dict[str, str]
    time_ms: TimeMs
    internal: bool = False


class CreateTopics(Base, frozen=True, tag=21):
    """Each topic stands or falls alone: `failures` name those that fell."""

    topics: tuple[CreateTopic, ...]


class DeleteTopic(Base, frozen=True, tag=22):
    """Takes the offsets that groups committed for the topic with it."""

    topic_id: Id


class UpdateTopicConfig(Base, frozen=True, tag=23):
    """`replace` drops every key that is not set."""

    topic_id: Id
    set: dict[str, str] = {}
    delete: tuple[str, ...] = ()
    replace: bool = False


class CreatePartitions(Base, frozen=True, tag=24):
    """`partition_count` is the number of partitions that the proposer saw; refused when it has changed since."""

    topic_id: Id
    partition_count: PartitionIndex
    partitions: tuple[PartitionAssignment, ...]
