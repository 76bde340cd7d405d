"""Commands that create, change and delete topics."""

from typing import Annotated, Final

from msgspec import Meta

from chronik.metadata.commands.base import BrokerId, CommandBase, CommandPart, PartitionIndex, TimeMs, UuidBytes
from chronik.metadata.levels import DYNAMIC_MEMBERSHIP_LEVEL, added_fields

NO_LEADER: Final = -1
"""The leader id of an offline partition, which has no leader because all ISR members are offline."""


TOPICS_PER_COMMAND_MAX: Final = 1000
"""The maximum number of topics in a metadata command. Applying one of this size blocks the event loop for under 10 ms.
"""


class PartitionAssignment(CommandPart, frozen=True):
    """The replicas, ISR and leader of a new partition."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: Annotated[int, Meta(ge=-1, le=2**31 - 1)]


class CreateTopic(CommandBase, frozen=True, tag=20):
    """A command that creates a topic with its partitions, replicas and leaders atomically."""

    topic_id: UuidBytes
    name: str
    partitions: tuple[PartitionAssignment, ...]
    configs: dict[str, str]
    time_ms: TimeMs
    internal: bool = False


class CreateTopics(CommandBase, frozen=True, tag=21):
    """A command that creates topics; each succeeds or fails separately.

    The result's `failures` lists those that failed.
    """

    topics: tuple[CreateTopic, ...]


class DeleteTopic(CommandBase, frozen=True, tag=22):
    """A command that deletes a topic and the offsets that groups committed for it."""

    topic_id: UuidBytes


@added_fields(time_ms=DYNAMIC_MEMBERSHIP_LEVEL)
class UpdateTopicConfig(CommandBase, frozen=True, tag=23):
    """A command that changes the configs of a topic. With `replace`, configs that are not in `set` are removed."""

    topic_id: UuidBytes
    set: dict[str, str] = {}
    delete: tuple[str, ...] = ()
    replace: bool = False
    time_ms: TimeMs = -1


@added_fields(time_ms=DYNAMIC_MEMBERSHIP_LEVEL)
class CreatePartitions(CommandBase, frozen=True, tag=24):
    """A command that adds partitions to a topic.

    It is rejected if the partition count is no longer `partition_count`.
    """

    topic_id: UuidBytes
    partition_count: PartitionIndex
    partitions: tuple[PartitionAssignment, ...]
    time_ms: TimeMs = -1
