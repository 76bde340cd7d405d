"""Handlers of consumer group commands and offset commits.

The commands carry the leader epoch of the coordinator's partition. Commands of a replaced coordinator are rejected.
"""

from __future__ import annotations

from typing import Final

from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.commands.groups import (
    CommitOffset,
    CommitOffsetBatch,
    CreateConsumerGroup,
    DeleteConsumerGroup,
    DeleteOffsets,
    ExpireOffsets,
    OffsetToCommit,
    UpdateConsumerGroup,
    UpdateGroupConfig,
)
from chronik.metadata.handlers import CommandHandlers
from chronik.metadata.handlers.configs import apply_config_changes
from chronik.metadata.image import Image
from chronik.metadata.names import OFFSETS_TOPIC
from chronik.metadata.records import ApplyResult, CommandRejectedError, CommittedOffset, Group, ItemFailure
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode
from chronik.wording import pluralize

EMPTY_STATE: Final = "Empty"
"""Kafka's name for the state of a group without members."""

GROUPS_WITH_CONFIGS_MAX: Final = 1000
"""The maximum number of groups with configs.

A group need not exist to have configs, and its name may have 32 kB. Without a limit, clients could exhaust memory.
"""


def create_consumer_group(writer: ImageWriter, command: CreateConsumerGroup, index: int) -> ApplyResult:
    """Apply a CreateConsumerGroup command: create a consumer group without members."""
    check_group_coordinator_epoch(writer.image, command.group_id, command.coordinator_epoch)
    if command.group_id in writer.image.groups:
        raise CommandRejectedError(ErrorCode.DUPLICATE_RESOURCE, f"group {command.group_id} exists already")
    writer.put_group(create_empty_group(command.group_id, command.protocol_type, command.time_ms))
    return ApplyResult()


def update_consumer_group(writer: ImageWriter, command: UpdateConsumerGroup, index: int) -> ApplyResult:
    """Apply an UpdateConsumerGroup command: store the group state that the group coordinator has sent."""
    check_group_coordinator_epoch(writer.image, command.group_id, command.coordinator_epoch)
    known = writer.image.groups.get(command.group_id)
    if known is not None and command.generation < known.generation:
        message = f"group {command.group_id} is in generation {known.generation} already"
        raise CommandRejectedError(ErrorCode.ILLEGAL_GENERATION, message)
    writer.put_group(
        Group(
            group_id=command.group_id if known is None else known.group_id,
            protocol_type=command.protocol_type,
            generation=command.generation,
            protocol_name=command.protocol_name,
            leader=command.leader,
            state=command.state,
            members=command.members,
            time_ms=command.time_ms,
        )
    )
    return ApplyResult()


def delete_consumer_group(writer: ImageWriter, command: DeleteConsumerGroup, index: int) -> ApplyResult:
    """Apply a DeleteConsumerGroup command: delete a consumer group without members, and its committed offsets."""
    image = writer.image
    check_group_coordinator_epoch(image, command.group_id, command.coordinator_epoch)
    group = image.groups.get(command.group_id)
    if group is None:
        raise CommandRejectedError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {command.group_id}")
    if group.members:
        raise CommandRejectedError(
            ErrorCode.NON_EMPTY_GROUP, f"group {command.group_id} has {pluralize(len(group.members), 'member')}"
        )
    if image.get_staged_offsets(command.group_id):
        raise CommandRejectedError(
            ErrorCode.NON_EMPTY_GROUP, f"group {command.group_id} has offsets in open transactions"
        )
    writer.remove_offsets_of_group(command.group_id)
    writer.remove_group(command.group_id)
    return ApplyResult()


def update_group_config(writer: ImageWriter, command: UpdateGroupConfig, index: int) -> ApplyResult:
    """Apply an UpdateGroupConfig command: change the configs of a consumer group."""
    known = writer.image.group_configs
    old = known.get(command.group_id, {})
    new = apply_config_changes(old, command.set, command.delete, replace=command.replace)
    if new and not old and len(known) >= GROUPS_WITH_CONFIGS_MAX:
        raise CommandRejectedError(ErrorCode.INVALID_CONFIG, f"{GROUPS_WITH_CONFIGS_MAX} groups have configs already")
    if new != old:
        writer.set_group_configs(command.group_id, new)
    return ApplyResult()


def commit_offset(writer: ImageWriter, command: CommitOffset, index: int) -> ApplyResult:
    """Apply a CommitOffset command: store the committed offsets of one consumer group."""
    failures = [ItemFailure(item, code, message) for item, code, message in _commit_offsets(writer, command, index)]
    return ApplyResult(failures=tuple(failures))


def commit_offset_batch(writer: ImageWriter, command: CommitOffsetBatch, index: int) -> ApplyResult:
    """Apply a CommitOffsetBatch command: store the committed offsets of several consumer groups."""
    failures: list[ItemFailure] = []
    for item, commit in enumerate(command.commits):
        try:
            failures += [
                ItemFailure(item, code, message, part) for part, code, message in _commit_offsets(writer, commit, index)
            ]
        except CommandRejectedError as rejected:
            failures.append(ItemFailure(item, rejected.code, rejected.message))
    return ApplyResult(failures=tuple(failures))


def _commit_offsets(writer: ImageWriter, command: CommitOffset, index: int) -> list[tuple[int, ErrorCode, str]]:
    """Commit a group's offsets. Return the rejected offsets as (position, error code, message)."""
    image = writer.image
    group = image.groups.get(command.group_id)
    group_id = command.group_id if group is None else group.group_id  # share one copy of the id between all tables
    check_group_coordinator_epoch(image, group_id, command.coordinator_epoch)
    rejected_offsets: list[tuple[int, ErrorCode, str]] = []
    has_staged = bool(image.get_staged_offsets(group_id))
    for position, offset in enumerate(command.offsets):
        if not partition_exists(image, offset):
            message = f"there is no partition {offset.topic}-{offset.partition}"
            rejected_offsets.append((position, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message))
            continue
        committed = CommittedOffset(
            offset.offset, offset.leader_epoch, offset.metadata, command.commit_time_ms, command.expire_time_ms
        )
        writer.put_offset(group_id, offset.topic, offset.partition, committed)
        if has_staged:
            writer.remove_staged_offsets_before(group_id, offset.topic, offset.partition, index)
    if group is None and len(rejected_offsets) < len(command.offsets):
        writer.put_group(create_empty_group(group_id, "", command.commit_time_ms))
    return rejected_offsets


def partition_exists(image: Image, offset: OffsetToCommit) -> bool:
    """Return whether the topic and partition of the offset to commit exist.

    A commit must not leave offsets of a deleted topic: a new topic with the same name would inherit them.
    """
    topic = image.topics.get(offset.topic)
    return topic is not None and topic.has_partition(offset.partition)


def delete_offsets(writer: ImageWriter, command: DeleteOffsets, index: int) -> ApplyResult:
    """Apply a DeleteOffsets command: delete committed offsets of a consumer group."""
    image = writer.image
    check_group_coordinator_epoch(image, command.group_id, command.coordinator_epoch)
    if command.group_id not in image.groups:
        raise CommandRejectedError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {command.group_id}")
    for key in command.keys:
        if image.offset(command.group_id, key.topic, key.partition) is not None:
            writer.remove_offset(command.group_id, key.topic, key.partition)
    return ApplyResult()


def expire_offsets(writer: ImageWriter, command: ExpireOffsets, index: int) -> ApplyResult:
    """Apply an ExpireOffsets command: delete expired offsets, except those committed again since the check."""
    image = writer.image
    check_group_coordinator_epoch(image, command.group_id, command.coordinator_epoch)
    expired = 0
    for seen in command.offsets:
        committed = image.offset(command.group_id, seen.topic, seen.partition)
        if committed is not None and committed.commit_time_ms == seen.commit_time_ms:
            writer.remove_offset(command.group_id, seen.topic, seen.partition)
            expired += 1
    group = image.groups.get(command.group_id)
    unchanged = group is not None and not group.members and 0 <= command.group_time_ms == group.time_ms
    if unchanged and not image.offsets(command.group_id) and not image.get_staged_offsets(command.group_id):
        writer.remove_group(command.group_id)
    return ApplyResult(value=expired)


def check_group_coordinator_epoch(image: Image, group_id: str, epoch: int) -> None:
    """Check that `epoch` is the current epoch of the group's coordinator.

    Raises:
        CommandRejectedError: The group has another coordinator.
    """
    if epoch == NO_EPOCH:
        return
    partition = image.find_coordinator_partition(OFFSETS_TOPIC, group_id)
    if partition is None or partition.leader_epoch != epoch:
        raise CommandRejectedError(ErrorCode.NOT_COORDINATOR, f"group {group_id} has another coordinator by now")


def create_empty_group(group_id: str, protocol_type: str, time_ms: int) -> Group:
    """Return the record of a new consumer group without members."""
    return Group(
        group_id=group_id,
        protocol_type=protocol_type,
        generation=0,
        protocol_name=None,
        leader=None,
        state=EMPTY_STATE,
        members=(),
        time_ms=time_ms,
    )


HANDLERS: CommandHandlers = {
    CreateConsumerGroup: create_consumer_group,
    UpdateConsumerGroup: update_consumer_group,
    DeleteConsumerGroup: delete_consumer_group,
    UpdateGroupConfig: update_group_config,
    CommitOffset: commit_offset,
    CommitOffsetBatch: commit_offset_batch,
    DeleteOffsets: delete_offsets,
    ExpireOffsets: expire_offsets,
}
