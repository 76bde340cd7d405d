"""The requests of an import, in order. Pure functions, shared by the importer and the dry run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from chronik.metadata.commands.brokers import CLUSTER_DEFAULT
from chronik.metadata.commands.imports import IMPORTED_GROUPS_PER_COMMAND_MAX, ImportedGroup, ImportedOffset
from chronik.metadata.image import Image
from chronik.metadata.records import CommittedOffset, Topic
from chronik.migration.import_plan import ImportPlan
from chronik.migration.source import ImportSource
from chronik.protocol.messages.alter_import import (
    AlterImportRequest,
    ImportAction,
    ImportConfig,
    ImportGroup,
    ImportGroupConfigs,
    ImportOffset,
    ImportTopic,
)

TOPICS_PER_REQUEST: Final = 200

GROUPS_REQUEST_CHARACTERS_MAX: Final = 1024 * 1024
"""The maximum size of names and offset metadata in a request with groups, which becomes one command."""

SOURCE_CHARACTERS_MAX: Final = 1000


def build_begin_request(source: ImportSource, plan: ImportPlan) -> AlterImportRequest:
    """Return the request that starts the import."""
    request = _request(source, ImportAction.BEGIN)
    request.source = source.name[:SOURCE_CHARACTERS_MAX]
    request.topic_count = len(plan.topics)
    request.producer_ids = plan.producer_ids
    return request


def build_topic_requests(
    source: ImportSource, plan: ImportPlan, factor_of: Callable[[Topic], int]
) -> Iterator[AlterImportRequest]:
    """Yield the requests that create the topics."""
    for first in range(0, len(plan.topics), TOPICS_PER_REQUEST):
        request = _request(source, ImportAction.TOPICS)
        topics = plan.topics[first : first + TOPICS_PER_REQUEST]
        request.topics = [_topic(topic, plan, factor_of(topic)) for topic in topics]
        yield request


def _topic(topic: Topic, plan: ImportPlan, replication_factor: int) -> ImportTopic:
    epochs = [
        1 + max(0, partition.leader_epoch, plan.logs[topic.id, index].last_epoch)
        for index, partition in enumerate(topic.partitions)
    ]
    return ImportTopic(
        topic_id=topic.id,
        name=topic.name,
        created_ms=topic.created_ms,
        replication_factor=replication_factor,
        leader_epochs=epochs,
        configs=_configs(topic.configs),
    )


def build_group_requests(source: ImportSource, groups: Iterable[ImportedGroup]) -> Iterator[AlterImportRequest]:
    """Yield the requests with groups and offsets, each small enough for one command. Large groups are split."""
    request, entries, characters = _request(source, ImportAction.GROUPS), 0, 0
    for group in groups:
        own = len(group.group_id) + len(group.protocol_type)
        part: ImportGroup | None = None
        for offset in group.offsets or (None,):
            size = own + (0 if offset is None else len(offset.topic) + len(offset.metadata or ""))
            is_full = entries + 2 > IMPORTED_GROUPS_PER_COMMAND_MAX or characters + size > GROUPS_REQUEST_CHARACTERS_MAX
            if request.groups and is_full:
                yield request
                request, entries, characters, part = _request(source, ImportAction.GROUPS), 0, 0, None
            if part is None:
                part = ImportGroup(group_id=group.group_id, protocol_type=group.protocol_type)
                request.groups.append(part)
                entries += 1
                characters += own
            if offset is not None:
                part.offsets.append(_offset(offset))
                entries += 1
                characters += size - own
    if request.groups:
        yield request


def find_missing_groups(groups: Iterable[ImportedGroup], image: Image) -> Iterator[ImportedGroup]:
    """Yield the groups with the offsets that the cluster does not have yet, to continue an interrupted import."""
    for group in groups:
        offsets = tuple(
            each for each in group.offsets if image.offset(group.group_id, each.topic, each.partition) != _stored(each)
        )
        if offsets or group.group_id not in image.groups:
            yield ImportedGroup(group.group_id, group.protocol_type, offsets)


def build_finish_request(source: ImportSource, groups: Sequence[ImportedGroup] = ()) -> AlterImportRequest:
    """Return the request that finishes the import. Below level 5, it contains the groups."""
    image, request = source.image, _request(source, ImportAction.FINISH)
    request.groups = [
        ImportGroup(group_id=each.group_id, protocol_type=each.protocol_type, offsets=list(map(_offset, each.offsets)))
        for each in groups
    ]
    request.group_configs = [
        ImportGroupConfigs(group_id=group_id, configs=_configs(dict(configs)))
        for group_id, configs in image.group_configs.items()
    ]
    if source.is_backup:
        request.cluster_configs = _configs(dict(image.broker_configs.get(CLUSTER_DEFAULT, {})))
    return request


def _request(source: ImportSource, action: ImportAction) -> AlterImportRequest:
    return AlterImportRequest(import_id=source.id, action=action)


def _offset(offset: ImportedOffset) -> ImportOffset:
    return ImportOffset(
        topic=offset.topic,
        partition=offset.partition,
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_time_ms=offset.commit_time_ms,
        expire_time_ms=offset.expire_time_ms,
    )


def _stored(offset: ImportedOffset) -> CommittedOffset:
    return CommittedOffset(
        offset.offset, offset.leader_epoch, offset.metadata, offset.commit_time_ms, offset.expire_time_ms
    )


def _configs(configs: dict[str, str]) -> list[ImportConfig]:
    return [ImportConfig(name=name, value=value) for name, value in configs.items()]
