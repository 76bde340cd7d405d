"""Commands of topics."""

from typing import Annotated, Final

from msgspec import Meta

from chronik.metadata.commands.base import Base, BrokerId, Id, Part, PartitionIndex, TimeMs
from chronik.metadata.levels import GROWTH, added_fields

NO_LEADER: Final = -1
"""The leader of a partition whose in-sync replicas are all away."""


TOPICS_PER_COMMAND_MAX: Final = 1000
"""A command is applied in one turn of the loop, at some 8 µs per topic: 1,000 keep it under 10 ms."""


class PartitionAssignment(Part, frozen=True):
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: Annotated[int, Meta(ge=-1, le=2**31 - 1)]


class CreateTopic(Base, frozen=True, tag=20):
    """Creates a topic with its partitions, replicas and leaders, all at once or not at all."""

    topic_id: Id
    name: str
    partitions: tuple[PartitionAssignment, ...]
    configs: dict[str, str]
    time_ms: TimeMs
    internal: bool = False


class CreateTopics(Base, frozen=True, tag=21):
    """Creates topics, each of which succeeds or fails alone: `failures` names those that failed."""

    topics: tuple[CreateTopic, ...]


class DeleteTopic(Base, frozen=True, tag=22):
    """Deletes a topic, and the offsets that groups committed for it."""

    topic_id: Id


@added_fields(time_ms=GROWTH)
class UpdateTopicConfig(Base, frozen=True, tag=23):
    """Changes configs of a topic. `replace` drops every key that is not set."""

    topic_id: Id
    set: dict[str, str] = {}
    delete: tuple[str, ...] = ()
    replace: bool = False
    time_ms: TimeMs = -1


@added_fields(time_ms=GROWTH)
class CreatePartitions(Base, frozen=True, tag=24):
    """Adds partitions. It is refused when `partition_count`, the number that the proposer saw, has changed since."""

    topic_id: Id
    partition_count: PartitionIndex
    partitions: tuple[PartitionAssignment, ...]
    time_ms: TimeMs = -1
