"""Commands that bring topics of another store into the cluster, which nobody sees until the last of them."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from chronik.metadata.commands.base import NO_EPOCH, Base, Epoch, Id, Part, PartitionIndex, TimeMs
from chronik.metadata.commands.topics import CreateTopic
from chronik.metadata.levels import GROWTH, IMPORTED_GROUPS, since_level

IMPORTED_OFFSETS_MAX: Final = 100_000
"""Committed offsets in one FinishImport. Applying them blocks the event loop of every node for about 5 µs each. From
level 5 on, offsets come with ImportGroups, in any number of commands."""

IMPORTED_GROUPS_PER_COMMAND_MAX: Final = 2000
"""Groups and committed offsets together, in one ImportGroups or removed by one GiveUpImport: about 10 ms of the event
loop of every node."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


@since_level(GROWTH)
class BeginImport(Base, frozen=True, tag=60):
    """Begins an import, and reserves producer ids for it. The result's `value` is the first of them: as much is added
    to each id in the imported batches. There is one import at a time; to begin it once more changes nothing."""

    import_id: Id
    source: Annotated[str, Meta(max_length=1000)]
    """What people call it."""
    topic_count: Count
    producer_ids: Count
    """One more than the highest id that the source has seen."""
    time_ms: TimeMs


@since_level(GROWTH)
class ImportTopics(Base, frozen=True, tag=61):
    """Makes topics of the import, each of which succeeds or fails alone; one that is there already is no failure.

    `leader_epochs` are the epochs that their partitions begin with: above all that wrote the batches to come."""

    import_id: Id
    topics: tuple[CreateTopic, ...]
    leader_epochs: tuple[tuple[Epoch, ...], ...]


class ImportedOffset(Part, frozen=True):
    topic: str
    partition: PartitionIndex
    offset: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    leader_epoch: Epoch = NO_EPOCH
    metadata: str | None = None
    commit_time_ms: TimeMs = -1
    expire_time_ms: TimeMs = -1


class ImportedGroup(Part, frozen=True):
    group_id: str
    protocol_type: str
    offsets: tuple[ImportedOffset, ...]


@since_level(IMPORTED_GROUPS)
class ImportGroups(Base, frozen=True, tag=66):
    """Stores some of the import's groups and their committed offsets, before its topics are visible.

    An existing group keeps its state and gets the offsets. Applying the command again changes nothing."""

    import_id: Id
    groups: tuple[ImportedGroup, ...]
    time_ms: TimeMs


@since_level(GROWTH)
class FinishImport(Base, frozen=True, tag=62):
    """Shows all topics of the import, with what groups had committed for them. A group that is there already stays as
    it is, and gets the offsets; configs that are set already stay, too."""

    import_id: Id
    groups: tuple[ImportedGroup, ...]
    time_ms: TimeMs
    group_configs: dict[str, dict[str, str]] = {}
    cluster_configs: dict[str, str] = {}
    """Those of all brokers."""


@since_level(GROWTH)
class GiveUpImport(Base, frozen=True, tag=63):
    """Deletes some of the import's committed offsets, groups and topics, and finally the import itself. The result's
    `value` is the number of topics left: the proposer repeats the command until it is 0."""

    import_id: Id
