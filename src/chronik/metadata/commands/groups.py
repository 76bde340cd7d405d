"""Commands of consumer groups and the offsets that they commit."""

from typing import Annotated

from msgspec import Meta

from chronik.metadata.commands.base import NO_EPOCH, Base, Epoch, Part, PartitionIndex, TimeMs


class GroupMember(Part, frozen=True):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class CreateConsumerGroup(Base, frozen=True, tag=30):
    group_id: str
    protocol_type: str
    time_ms: TimeMs
    coordinator_epoch: Epoch = NO_EPOCH


class UpdateConsumerGroup(Base, frozen=True, tag=31):
    """Stores the whole group as its coordinator sees it; creates the group when there is none."""

    group_id: str
    protocol_type: str
    generation: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    protocol_name: str | None
    leader: str | None
    state: str
    members: tuple[GroupMember, ...]
    time_ms: TimeMs
    coordinator_epoch: Epoch = NO_EPOCH


class DeleteConsumerGroup(Base, frozen=True, tag=32):
    """Deletes a group without members, and its offsets."""

    group_id: str
    coordinator_epoch: Epoch = NO_EPOCH


class UpdateGroupConfig(Base, frozen=True, tag=37):
    """Changes configs of one group, which need not exist (yet). `replace` drops every key that is not set."""

    group_id: Annotated[str, Meta(min_length=1)]
    set: dict[str, str] = {}
    delete: tuple[str, ...] = ()
    replace: bool = False


class OffsetToCommit(Part, frozen=True):
    topic: str
    partition: PartitionIndex
    offset: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    leader_epoch: Epoch = NO_EPOCH
    metadata: str | None = None


class CommitOffset(Base, frozen=True, tag=33):
    """Commits offsets of one group; each succeeds or fails alone. The group is created when there is none."""

    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    commit_time_ms: TimeMs
    expire_time_ms: TimeMs = -1
    coordinator_epoch: Epoch = NO_EPOCH


class CommitOffsetBatch(Base, frozen=True, tag=34):
    """Commits of many groups. In `failures`, `item` is the commit and `part` the offset within it (-1: all of them)."""

    commits: tuple[CommitOffset, ...]


class OffsetKey(Part, frozen=True):
    topic: str
    partition: PartitionIndex


class DeleteOffsets(Base, frozen=True, tag=35):
    """Deletes committed offsets. Keys that do not exist are no failure."""

    group_id: str
    keys: tuple[OffsetKey, ...]
    coordinator_epoch: Epoch = NO_EPOCH


class ExpiredOffset(Part, frozen=True):
    topic: str
    partition: PartitionIndex
    commit_time_ms: TimeMs


class ExpireOffsets(Base, frozen=True, tag=36):
    """Deletes the offsets that still have the commit time that was seen. The result's `value` says how many.

    With `group_time_ms` >= 0 the group is deleted too, when it has neither members nor offsets left and its own time
    is still the one that was seen.
    """

    group_id: str
    offsets: tuple[ExpiredOffset, ...]
    group_time_ms: TimeMs = -1
    coordinator_epoch: Epoch = NO_EPOCH
