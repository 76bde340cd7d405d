"""Commands that import topics and groups from another data directory, invisibly to clients until FinishImport."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from chronik.metadata.commands.base import NO_EPOCH, CommandBase, CommandPart, Epoch, PartitionIndex, TimeMs, UuidBytes
from chronik.metadata.commands.topics import CreateTopic
from chronik.metadata.levels import DYNAMIC_MEMBERSHIP_LEVEL, IMPORTED_GROUPS_LEVEL, since_level

IMPORTED_OFFSETS_MAX: Final = 100_000
"""The maximum number of committed offsets in a FinishImport command.

Applying an offset blocks the event loop of every node for about 5 µs. From level 5 on, ImportGroups transfers any
number of offsets in several commands.
"""

IMPORTED_GROUPS_PER_COMMAND_MAX: Final = 2000
"""The maximum number of groups and committed offsets that one ImportGroups command adds or one AbortImport removes.

Applying a command of this size blocks the event loop of every node for about 10 ms.
"""

NonNegativeCount = Annotated[int, Meta(ge=0, le=2**63 - 1)]


@since_level(DYNAMIC_MEMBERSHIP_LEVEL)
class BeginImport(CommandBase, frozen=True, tag=60):
    """A command that starts an import from another cluster. The result's `value` is the first reserved producer id.

    That id is added to every producer id in the imported batches. Only one import runs at a time; repeating the command
    has no effect.
    """

    import_id: UuidBytes
    source: Annotated[str, Meta(max_length=1000)]
    """The display name of the source cluster."""
    topic_count: NonNegativeCount
    producer_ids: NonNegativeCount
    """The number of producer ids to reserve: one more than the highest producer id in the source cluster."""
    time_ms: TimeMs


@since_level(DYNAMIC_MEMBERSHIP_LEVEL)
class ImportTopics(CommandBase, frozen=True, tag=61):
    """A command that creates the imported topics, invisible to clients; each topic succeeds or fails separately.

    Existing topics of the import are ignored. `leader_epochs` are the initial leader epochs of the partitions. They
    exceed every epoch in the imported batches.
    """

    import_id: UuidBytes
    topics: tuple[CreateTopic, ...]
    leader_epochs: tuple[tuple[Epoch, ...], ...]


class ImportedOffset(CommandPart, frozen=True):
    """A committed offset of an imported group."""

    topic: str
    partition: PartitionIndex
    offset: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    leader_epoch: Epoch = NO_EPOCH
    metadata: str | None = None
    commit_time_ms: TimeMs = -1
    expire_time_ms: TimeMs = -1


class ImportedGroup(CommandPart, frozen=True):
    """An imported consumer group and its committed offsets."""

    group_id: str
    protocol_type: str
    offsets: tuple[ImportedOffset, ...]


@since_level(IMPORTED_GROUPS_LEVEL)
class ImportGroups(CommandBase, frozen=True, tag=66):
    """A command that adds imported consumer groups and their committed offsets before the topics become visible.

    An existing group keeps its state and gets the offsets. Repeating the command has no effect.
    """

    import_id: UuidBytes
    groups: tuple[ImportedGroup, ...]
    time_ms: TimeMs


@since_level(DYNAMIC_MEMBERSHIP_LEVEL)
class FinishImport(CommandBase, frozen=True, tag=62):
    """A command that makes all topics of an import visible, together with their committed offsets.

    An existing group keeps its state and gets the offsets; configs that are already set keep their values.
    """

    import_id: UuidBytes
    groups: tuple[ImportedGroup, ...]
    time_ms: TimeMs
    group_configs: dict[str, dict[str, str]] = {}
    cluster_configs: dict[str, str] = {}
    """The cluster-wide broker configs to import."""


@since_level(DYNAMIC_MEMBERSHIP_LEVEL)
class AbortImport(CommandBase, frozen=True, tag=63):
    """A command that deletes a batch of an unfinished import's offsets, groups and topics, and finally the import.

    The result's `value` is the number of topics left. The proposer repeats the command until it is 0.
    """

    import_id: UuidBytes
