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
    BeginImport,
    FinishImport,
    GiveUpImport,
    ImportedGroup,
    ImportGroups,
    ImportTopics,
)
from chronik.metadata.commands.topics import TOPICS_PER_COMMAND_MAX, CreateTopic
from chronik.metadata.handlers import Handlers
from chronik.metadata.handlers.cluster import PRODUCER_ID_MAX
from chronik.metadata.handlers.configs import checked_configs
from chronik.metadata.handlers.groups import empty_group
from chronik.metadata.handlers.topics import assigned, refuse_name
from chronik.metadata.image import Image
from chronik.metadata.levels import IMPORTED_GROUPS, level_of
from chronik.metadata.records import CommittedOffset, Failure, Import, Result, Topic
from chronik.metadata.rejection import Rejected
from chronik.metadata.writer import ImageWriter
from chronik.protocol.errors import ErrorCode

TOPICS_GIVEN_UP_PER_COMMAND_MAX: Final = 20
"""The maximum number of topics that one AbortImport removes, with their committed offsets."""


def begin_import(writer: ImageWriter, command: BeginImport, index: int) -> Result:
    """Start an import and reserve its producer ids."""
    known = writer.image.imported
    if known is not None and known.id == command.import_id:
        if known.is_finished:
            raise Rejected(ErrorCode.DUPLICATE_RESOURCE, f"{known.source} was imported already")
        return Result(value=known.first_producer_id)
    if known is not None and not known.is_finished:
        message = f"{known.source} is being imported: go on with that one, or give it up"
        raise Rejected(ErrorCode.INVALID_REQUEST, message)
    first = writer.image.next_producer_id
    if command.producer_ids > PRODUCER_ID_MAX - first:
        raise Rejected(ErrorCode.INVALID_REQUEST, "there are not enough producer ids left")
    writer.set_import(Import(command.import_id, command.source, command.topic_count, first, command.time_ms))
    writer.set_next_producer_id(first + command.producer_ids)
    return Result(value=first)


def import_topics(writer: ImageWriter, command: ImportTopics, index: int) -> Result:
    """Create topics of an import."""
    _require_unfinished(writer.image, command.import_id)
    if len(command.topics) > TOPICS_PER_COMMAND_MAX or len(command.topics) != len(command.leader_epochs):
        raise Rejected(ErrorCode.INVALID_REQUEST, f"not 1 to {TOPICS_PER_COMMAND_MAX} topics with their epochs")
    failures: list[Failure] = []
    for item, (topic, epochs) in enumerate(zip(command.topics, command.leader_epochs, strict=True)):
        try:
            _import_topic(writer, topic, epochs)
        except Rejected as rejected:
            failures.append(Failure(item, rejected.code, rejected.message))
    return Result(failures=tuple(failures))


def _import_topic(writer: ImageWriter, command: CreateTopic, leader_epochs: tuple[int, ...]) -> None:
    known = writer.image.importing.get(command.name)
    if known is not None and known.id == command.topic_id and len(known.partitions) == len(command.partitions):
        return
    refuse_name(writer.image, command)
    partitions = assigned(writer.image, command.partitions, existing=0)
    if len(leader_epochs) != len(partitions):
        raise Rejected(ErrorCode.INVALID_REQUEST, f"topic {command.name} has not one epoch for each partition")
    writer.add_topic(
        Topic(
            id=command.topic_id,
            name=command.name,
            partitions=tuple(
                replace(partition, leader_epoch=epoch)
                for partition, epoch in zip(partitions, leader_epochs, strict=True)
            ),
            configs=checked_configs(command.configs),
            created_ms=command.time_ms,
            importing=True,
        )
    )


def import_groups(writer: ImageWriter, command: ImportGroups, index: int) -> Result:
    """Add groups of an import and their committed offsets."""
    image = writer.image
    _require_unfinished(image, command.import_id)
    if len(command.groups) + _offset_count(command.groups) > IMPORTED_GROUPS_PER_COMMAND_MAX:
        message = f"more than {IMPORTED_GROUPS_PER_COMMAND_MAX} groups and offsets in one command"
        raise Rejected(ErrorCode.INVALID_REQUEST, message)
    _check_offset_topics(image, command.groups)
    for group in command.groups:
        _add_group(writer, group, command.time_ms)
    return Result()


def finish_import(writer: ImageWriter, command: FinishImport, index: int) -> Result:
    """Make the topics of an import visible, and add its groups and configs."""
    image = writer.image
    known = _require_unfinished(image, command.import_id)
    if len(image.importing) != known.topic_count:
        message = f"{len(image.importing)} of {known.topic_count} topics of {known.source} are there"
        raise Rejected(ErrorCode.INVALID_REQUEST, message)
    if _offset_count(command.groups) > IMPORTED_OFFSETS_MAX:
        # Results are part of the state hash: the message must be the same in all versions.
        raise Rejected(ErrorCode.INVALID_REQUEST, f"more than {IMPORTED_OFFSETS_MAX} offsets in one import")
    _check_offset_topics(image, command.groups)
    cluster_configs = checked_configs({**command.cluster_configs, **image.broker_configs.get(CLUSTER_DEFAULT, {})})
    group_configs = {
        group_id: checked_configs(configs)
        for group_id, configs in command.group_configs.items()
        if group_id not in image.group_configs
    }
    for topic in list(image.importing.values()):
        writer.show_topic(topic)
    for group in command.groups:
        _add_group(writer, group, command.time_ms)
    for group_id, configs in group_configs.items():
        writer.set_group_configs(group_id, configs)
    if command.cluster_configs:
        writer.set_broker_configs(CLUSTER_DEFAULT, cluster_configs)
    writer.set_import(replace(known, is_finished=True))
    return Result(value=known.topic_count)


def _offset_count(groups: tuple[ImportedGroup, ...]) -> int:
    return sum(len(group.offsets) for group in groups)


def _check_offset_topics(image: Image, groups: tuple[ImportedGroup, ...]) -> None:
    for group in groups:
        for each in group.offsets:
            topic = image.importing.get(each.topic)
            if topic is None or not topic.has_partition(each.partition):
                message = f"group {group.group_id} has an offset of {each.topic}-{each.partition}, which does not come"
                raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def _add_group(writer: ImageWriter, group: ImportedGroup, time_ms: int) -> None:
    if group.group_id not in writer.image.groups:
        writer.put_group(empty_group(group.group_id, group.protocol_type, time_ms))
    for each in group.offsets:
        committed = CommittedOffset(
            each.offset, each.leader_epoch, each.metadata, each.commit_time_ms, each.expire_time_ms
        )
        writer.put_offset(group.group_id, each.topic, each.partition, committed)


def give_up_import(writer: ImageWriter, command: GiveUpImport, index: int) -> Result:
    """Remove a part of an unfinished import."""
    image = writer.image
    _require_unfinished(image, command.import_id)
    if level_of(image.features) >= IMPORTED_GROUPS:
        _remove_some(writer)
    else:
        for topic in list(image.importing.values())[:TOPICS_PER_COMMAND_MAX]:
            writer.remove_topic(topic)
    left = len(image.importing)
    if not left:
        writer.set_import(None)
    return Result(value=left)


def _remove_some(writer: ImageWriter) -> None:
    """Remove topics of the import and their committed offsets, as many as fit into one command.

    The order of names makes the choice the same on every node. The number of topics is limited as well, because finding
    the groups of a topic scans all groups.
    """
    budget = IMPORTED_GROUPS_PER_COMMAND_MAX
    for name in sorted(writer.image.importing)[:TOPICS_GIVEN_UP_PER_COMMAND_MAX]:
        for group_id in sorted(writer.image.groups_with_offsets_of(name)):
            partitions = [partition for partition, _ in writer.image.offsets(group_id).of_topic(name)]
            for partition in partitions[:budget]:
                writer.remove_offset(group_id, name, partition)
            budget -= len(partitions)
            if budget < 0:
                return
            _remove_group_if_unused(writer, group_id)
        writer.remove_topic(writer.image.importing[name])


def _remove_group_if_unused(writer: ImageWriter, group_id: str) -> None:
    image = writer.image
    group = image.groups.get(group_id)
    if group is not None and not group.members and not image.offsets(group_id) and not image.staged(group_id):
        writer.remove_group(group_id)


def _require_unfinished(image: Image, import_id: bytes) -> Import:
    """Return the unfinished import with this id.

    Raises:
        CommandRejectedError: The import does not exist or is finished.
    """
    known = image.imported
    if known is None or known.id != import_id or known.is_finished:
        raise Rejected(ErrorCode.RESOURCE_NOT_FOUND, f"there is no import {format_id(import_id)} under way")
    return known


HANDLERS: Handlers = {
    BeginImport: begin_import,
    ImportTopics: import_topics,
    ImportGroups: import_groups,
    FinishImport: finish_import,
    GiveUpImport: give_up_import,
}
