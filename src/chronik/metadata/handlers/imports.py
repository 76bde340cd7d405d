"""Handlers of import commands.

Imported topics have replicas and leaders, but are invisible until the import is finished.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from chronik.ids import format_id
from chronik.metadata.commands.brokers import CLUSTER_DEFAULT
from chronik.metadata.commands.imports import (
    IMPORTED_GROUPS_PER_COMMAND_MAX,
    IMPORTED_OFFSETS_MAX,
    AbortImport,
    BeginImport,
    FinishImport,
    ImportedGroup,
    ImportGroups,
    ImportTopics,
)
from chronik.metadata.commands.topics import TOPICS_PER_COMMAND_MAX, CreateTopic
from chronik.metadata.handlers import CommandHandlers
from chronik.metadata.handlers.cluster import PRODUCER_ID_MAX
from chronik.metadata.handlers.configs import validate_configs
from chronik.metadata.handlers.groups import create_empty_group
from chronik.metadata.handlers.topics import build_partitions, check_topic_name
from chronik.metadata.image import Image
from chronik.metadata.levels import IMPORTED_GROUPS_LEVEL, get_cluster_level
from chronik.metadata.records import ApplyResult, CommandRejectedError, CommittedOffset, ImportState, ItemFailure, Topic
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode

TOPICS_ABORTED_PER_COMMAND_MAX: Final = 20
"""The maximum number of topics that one AbortImport command deletes."""


def begin_import(writer: ImageWriter, command: BeginImport, index: int) -> ApplyResult:
    """Apply a BeginImport command: record the import as started and reserve its producer ids."""
    known = writer.image.latest_import
    if known is not None and known.id == command.import_id:
        if known.is_finished:
            raise CommandRejectedError(ErrorCode.DUPLICATE_RESOURCE, f"{known.source} was imported already")
        return ApplyResult(value=known.first_producer_id)
    if known is not None and not known.is_finished:
        message = f"{known.source} is being imported: go on with that one, or give it up"
        raise CommandRejectedError(ErrorCode.INVALID_REQUEST, message)
    first = writer.image.next_producer_id
    if command.producer_ids > PRODUCER_ID_MAX - first:
        raise CommandRejectedError(ErrorCode.INVALID_REQUEST, "there are not enough producer ids left")
    writer.set_import_state(ImportState(command.import_id, command.source, command.topic_count, first, command.time_ms))
    writer.set_next_producer_id(first + command.producer_ids)
    return ApplyResult(value=first)


def import_topics(writer: ImageWriter, command: ImportTopics, index: int) -> ApplyResult:
    """Apply an ImportTopics command: create topics that stay invisible until the import is finished."""
    _require_unfinished_import(writer.image, command.import_id)
    if len(command.topics) > TOPICS_PER_COMMAND_MAX or len(command.topics) != len(command.leader_epochs):
        raise CommandRejectedError(
            ErrorCode.INVALID_REQUEST, f"not 1 to {TOPICS_PER_COMMAND_MAX} topics with their epochs"
        )
    failures: list[ItemFailure] = []
    for item, (topic, epochs) in enumerate(zip(command.topics, command.leader_epochs, strict=True)):
        try:
            _import_topic(writer, topic, epochs)
        except CommandRejectedError as rejected:
            failures.append(ItemFailure(item, rejected.code, rejected.message))
    return ApplyResult(failures=tuple(failures))


def _import_topic(writer: ImageWriter, command: CreateTopic, leader_epochs: tuple[int, ...]) -> None:
    known = writer.image.importing_topics.get(command.name)
    if known is not None and known.id == command.topic_id and len(known.partitions) == len(command.partitions):
        return
    check_topic_name(writer.image, command)
    partitions = build_partitions(writer.image, command.partitions, existing=0)
    if len(leader_epochs) != len(partitions):
        raise CommandRejectedError(
            ErrorCode.INVALID_REQUEST, f"topic {command.name} has not one epoch for each partition"
        )
    writer.add_topic(
        Topic(
            id=command.topic_id,
            name=command.name,
            partitions=tuple(
                replace(partition, leader_epoch=epoch)
                for partition, epoch in zip(partitions, leader_epochs, strict=True)
            ),
            configs=validate_configs(command.configs),
            created_ms=command.time_ms,
            importing=True,
        )
    )


def import_groups(writer: ImageWriter, command: ImportGroups, index: int) -> ApplyResult:
    """Apply an ImportGroups command: add consumer groups of an import with their committed offsets."""
    image = writer.image
    _require_unfinished_import(image, command.import_id)
    if len(command.groups) + _count_imported_offsets(command.groups) > IMPORTED_GROUPS_PER_COMMAND_MAX:
        message = f"more than {IMPORTED_GROUPS_PER_COMMAND_MAX} groups and offsets in one command"
        raise CommandRejectedError(ErrorCode.INVALID_REQUEST, message)
    _check_offset_partitions_are_imported(image, command.groups)
    for group in command.groups:
        _add_group(writer, group, command.time_ms)
    return ApplyResult()


def finish_import(writer: ImageWriter, command: FinishImport, index: int) -> ApplyResult:
    """Apply a FinishImport command: make the imported topics visible, and add the import's groups and configs."""
    image = writer.image
    known = _require_unfinished_import(image, command.import_id)
    if len(image.importing_topics) != known.topic_count:
        message = f"{len(image.importing_topics)} of {known.topic_count} topics of {known.source} are there"
        raise CommandRejectedError(ErrorCode.INVALID_REQUEST, message)
    if _count_imported_offsets(command.groups) > IMPORTED_OFFSETS_MAX:
        # Results are part of the state hash: the message must be the same in all versions.
        raise CommandRejectedError(ErrorCode.INVALID_REQUEST, f"more than {IMPORTED_OFFSETS_MAX} offsets in one import")
    _check_offset_partitions_are_imported(image, command.groups)
    cluster_configs = validate_configs({**command.cluster_configs, **image.broker_configs.get(CLUSTER_DEFAULT, {})})
    group_configs = {
        group_id: validate_configs(configs)
        for group_id, configs in command.group_configs.items()
        if group_id not in image.group_configs
    }
    for topic in list(image.importing_topics.values()):
        writer.publish_imported_topic(topic)
    for group in command.groups:
        _add_group(writer, group, command.time_ms)
    for group_id, configs in group_configs.items():
        writer.set_group_configs(group_id, configs)
    if command.cluster_configs:
        writer.set_broker_configs(CLUSTER_DEFAULT, cluster_configs)
    writer.set_import_state(replace(known, is_finished=True))
    return ApplyResult(value=known.topic_count)


def _count_imported_offsets(groups: tuple[ImportedGroup, ...]) -> int:
    return sum(len(group.offsets) for group in groups)


def _check_offset_partitions_are_imported(image: Image, groups: tuple[ImportedGroup, ...]) -> None:
    for group in groups:
        for each in group.offsets:
            topic = image.importing_topics.get(each.topic)
            if topic is None or not topic.has_partition(each.partition):
                message = f"group {group.group_id} has an offset of {each.topic}-{each.partition}, which does not come"
                raise CommandRejectedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def _add_group(writer: ImageWriter, group: ImportedGroup, time_ms: int) -> None:
    if group.group_id not in writer.image.groups:
        writer.put_group(create_empty_group(group.group_id, group.protocol_type, time_ms))
    for each in group.offsets:
        committed = CommittedOffset(
            each.offset, each.leader_epoch, each.metadata, each.commit_time_ms, each.expire_time_ms
        )
        writer.put_offset(group.group_id, each.topic, each.partition, committed)


def abort_import(writer: ImageWriter, command: AbortImport, index: int) -> ApplyResult:
    """Apply an AbortImport command: delete a batch of the unfinished import's topics, groups and offsets."""
    image = writer.image
    _require_unfinished_import(image, command.import_id)
    if get_cluster_level(image.features) >= IMPORTED_GROUPS_LEVEL:
        _remove_batch_of_imported_topics(writer)
    else:
        for topic in list(image.importing_topics.values())[:TOPICS_PER_COMMAND_MAX]:
            writer.remove_topic(topic)
    left = len(image.importing_topics)
    if not left:
        writer.set_import_state(None)
    return ApplyResult(value=left)


def _remove_batch_of_imported_topics(writer: ImageWriter) -> None:
    """Delete topics of the unfinished import with their committed offsets, up to the limits of one AbortImport command.

    The order of names makes the choice the same on every node. The number of topics is limited as well, because finding
    the groups of a topic scans all groups.
    """
    budget = IMPORTED_GROUPS_PER_COMMAND_MAX
    for name in sorted(writer.image.importing_topics)[:TOPICS_ABORTED_PER_COMMAND_MAX]:
        for group_id in sorted(writer.image.find_groups_with_offsets_of_topic(name)):
            partitions = [partition for partition, _ in writer.image.offsets(group_id).iter_offsets_of_topic(name)]
            for partition in partitions[:budget]:
                writer.remove_offset(group_id, name, partition)
            budget -= len(partitions)
            if budget < 0:
                return
            _remove_group_if_unused(writer, group_id)
        writer.remove_topic(writer.image.importing_topics[name])


def _remove_group_if_unused(writer: ImageWriter, group_id: str) -> None:
    image = writer.image
    group = image.groups.get(group_id)
    if (
        group is not None
        and not group.members
        and not image.offsets(group_id)
        and not image.get_staged_offsets(group_id)
    ):
        writer.remove_group(group_id)


def _require_unfinished_import(image: Image, import_id: bytes) -> ImportState:
    """Return the unfinished import with this id.

    Raises:
        CommandRejectedError: The import does not exist or is finished.
    """
    known = image.latest_import
    if known is None or known.id != import_id or known.is_finished:
        raise CommandRejectedError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no import {format_id(import_id)} under way")
    return known


HANDLERS: CommandHandlers = {
    BeginImport: begin_import,
    ImportTopics: import_topics,
    ImportGroups: import_groups,
    FinishImport: finish_import,
    AbortImport: abort_import,
}
