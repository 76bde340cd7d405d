"""Commands that change consumer groups, their configs and their committed offsets."""

from typing import Annotated

from msgspec import Meta

from chronik.metadata.commands.base import NO_EPOCH, CommandBase, CommandPart, Epoch, PartitionIndex, TimeMs


class GroupMember(CommandPart, frozen=True):
    """A member of a consumer group with its supported protocols and its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class CreateConsumerGroup(CommandBase, frozen=True, tag=30):
    """A command that creates an empty consumer group."""

    group_id: str
    protocol_type: str
    time_ms: TimeMs
    coordinator_epoch: Epoch = NO_EPOCH


class UpdateConsumerGroup(CommandBase, frozen=True, tag=31):
    """A command by which a group coordinator stores a group's state, creating the group if necessary."""

    group_id: str
    protocol_type: str
    generation: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    protocol_name: str | None
    leader: str | None
    state: str
    members: tuple[GroupMember, ...]
    time_ms: TimeMs
    coordinator_epoch: Epoch = NO_EPOCH


class DeleteConsumerGroup(CommandBase, frozen=True, tag=32):
    """A command that deletes an empty group and its committed offsets."""

    group_id: str
    coordinator_epoch: Epoch = NO_EPOCH


class UpdateGroupConfig(CommandBase, frozen=True, tag=37):
    """A command that changes the configs of a group. The group need not exist.

    With `replace`, keys that are not in `set` are removed.
    """

    group_id: Annotated[str, Meta(min_length=1)]
    set: dict[str, str] = {}
    delete: tuple[str, ...] = ()
    replace: bool = False


class OffsetToCommit(CommandPart, frozen=True):
    """A partition and the offset to commit for it."""

    topic: str
    partition: PartitionIndex
    offset: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
    leader_epoch: Epoch = NO_EPOCH
    metadata: str | None = None


class CommitOffset(CommandBase, frozen=True, tag=33):
    """A command that commits offsets of one group; each offset succeeds or fails separately.

    The command creates the group if it does not exist.
    """

    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    commit_time_ms: TimeMs
    expire_time_ms: TimeMs = -1
    coordinator_epoch: Epoch = NO_EPOCH


class CommitOffsetBatch(CommandBase, frozen=True, tag=34):
    """A command that commits offsets of several groups.

    In the result's `failures`, `item` is the position of the commit and `part` that of the offset in it (-1 for all of
    its offsets).
    """

    commits: tuple[CommitOffset, ...]


class OffsetKey(CommandPart, frozen=True):
    """The topic and partition of a committed offset."""

    topic: str
    partition: PartitionIndex


class DeleteOffsets(CommandBase, frozen=True, tag=35):
    """A command that deletes committed offsets of a group. Missing offsets are ignored."""

    group_id: str
    keys: tuple[OffsetKey, ...]
    coordinator_epoch: Epoch = NO_EPOCH


class ExpiredOffset(CommandPart, frozen=True):
    """A committed offset to delete because it has expired, with the commit time that the coordinator has checked."""

    topic: str
    partition: PartitionIndex
    commit_time_ms: TimeMs


class ExpireOffsets(CommandBase, frozen=True, tag=36):
    """A command that deletes a group's expired offsets, except those committed again since the coordinator's check.

    The result's `value` is the number deleted. If `group_time_ms` is not negative, the command also deletes the group,
    provided that it has neither members nor offsets left and has not changed since that time.
    """

    group_id: str
    offsets: tuple[ExpiredOffset, ...]
    group_time_ms: TimeMs = -1
    coordinator_epoch: Epoch = NO_EPOCH
