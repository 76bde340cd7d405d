"""The plan of an import: what the source contains, why a cluster cannot accept it, and the requests of the import.

Pure functions, shared by the importer and the dry run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from chronik.limits import ACLS_MAX, QUOTA_ENTITIES_MAX
from chronik.metadata.commands.brokers import CLUSTER_DEFAULT
from chronik.metadata.commands.imports import (
    IMPORTED_GROUPS_PER_COMMAND_MAX,
    IMPORTED_OFFSETS_MAX,
    ImportedGroup,
    ImportedOffset,
)
from chronik.metadata.handlers.security import USERS_MAX
from chronik.metadata.image import Image
from chronik.metadata.levels import (
    FEATURE_NAME,
    IMPORTED_GROUPS_LEVEL,
    SCHEMAS_LEVEL,
    SECURITY_LEVEL,
    get_cluster_level,
)
from chronik.metadata.names import format_topic_metric_name
from chronik.metadata.records import CommittedOffset, Topic
from chronik.migration.registry_import import RegistryMetadata, find_registry_obstacles, read_registry_metadata
from chronik.migration.security_import import SecurityMetadata, read_security_metadata
from chronik.migration.source import ImportSource, SourceLog
from chronik.protocol.messages.alter_import import (
    AlterImportRequest,
    ImportAction,
    ImportConfig,
    ImportGroup,
    ImportGroupConfigs,
    ImportOffset,
    ImportTopic,
)
from chronik.wording import pluralize

NAMES_LISTED_MAX: Final = 5
"""The maximum number of names listed in an error message."""

TOPICS_PER_REQUEST: Final = 200

GROUPS_REQUEST_CHARACTERS_MAX: Final = 1024 * 1024
"""The maximum total length of names and offset metadata in a request that imports groups, in characters."""

SOURCE_CHARACTERS_MAX: Final = 1000


class ImportPlan(NamedTuple):
    """What an import transfers: topics, partition logs, consumer groups, users, ACLs, quotas and schemas."""

    topics: list[Topic]
    logs: dict[tuple[bytes, int], SourceLog]
    groups: list[ImportedGroup]
    producer_ids: int
    """An exclusive upper bound of all producer ids in the source."""
    security: SecurityMetadata
    registry: RegistryMetadata

    @property
    def other_metadata(self) -> str:
        """Return a description of the users, ACLs and quotas, and of the schema registry if there is one."""
        return str(self.security) if self.registry.is_empty else f"{self.security}, {self.registry}"

    @property
    def partition_count(self) -> int:
        """Return the number of partitions."""
        return len(self.logs)

    @property
    def offset_count(self) -> int:
        """Return the number of committed offsets."""
        return sum(len(group.offsets) for group in self.groups)

    def __str__(self) -> str:
        return ", ".join(
            (
                pluralize(len(self.topics), "topic"),
                pluralize(self.partition_count, "partition"),
                pluralize(self.total_offsets, "offset"),
                pluralize(len(self.groups), "group"),
                pluralize(self.offset_count, "committed offset"),
            )
        )

    @property
    def total_offsets(self) -> int:
        """Return the number of offsets in all logs, an upper bound of the number of records."""
        return sum(log.end - log.start for log in self.logs.values())


def build_import_plan(source: ImportSource) -> ImportPlan:
    """Collect the topics, partition logs, consumer groups and security metadata that an import of the source transfers.

    Raises:
        MigrationError: A log of the source is incomplete.
    """
    topics = source.topics()
    logs = {(topic.id, index): source.log(topic, index) for topic in topics for index in range(len(topic.partitions))}
    seen = max((log.producer_ids for log in logs.values()), default=0)
    groups, producer_ids = _build_imported_groups(source.image, topics, logs), max(seen, source.image.next_producer_id)
    security, registry = read_security_metadata(source.image), read_registry_metadata(source.image)
    return ImportPlan(topics, logs, groups, producer_ids, security, registry)


def _build_imported_groups(
    image: Image, topics: Sequence[Topic], logs: dict[tuple[bytes, int], SourceLog]
) -> list[ImportedGroup]:
    """Return the consumer groups with their committed offsets, limited to the end offsets of the logs."""
    ids = {topic.name: topic.id for topic in topics}
    groups = []
    for group_id, group in sorted(image.groups.items()):
        offsets = tuple(
            ImportedOffset(
                topic,
                index,
                min(each.offset, logs[ids[topic], index].end),
                each.leader_epoch,
                each.metadata,
                each.commit_time_ms,
                each.expire_time_ms,
            )
            for (topic, index), each in sorted(image.offsets(group_id).items())
            if topic in ids
        )
        groups.append(ImportedGroup(group_id, group.protocol_type, offsets))
    return groups


def find_import_obstacles(plan: ImportPlan, source: ImportSource, image: Image) -> list[str]:
    """Return one sentence for each reason why the cluster cannot accept the import."""
    found = []
    known = image.latest_import
    if known is not None and not known.is_finished and known.id != source.id:
        found.append(
            f"an import of {known.source} is in progress, or the source has changed since its import was started: "
            "continue that import, or abort it with --give-up"
        )
    if source.is_backup and (known is None or known.id != source.id):
        own = sorted(topic.name for topic in image.topics.values() if not topic.internal)
        used = own or sorted(group for group in image.groups if image.groups[group].members or image.offsets(group))
        if used:
            found.append(f"a backup can only be restored into an empty cluster, and this one has {_join_names(used)}")
    level = get_cluster_level(image.features)
    if level < IMPORTED_GROUPS_LEVEL and plan.offset_count > IMPORTED_OFFSETS_MAX:
        found.append(
            f"more than {IMPORTED_OFFSETS_MAX:,} committed offsets ({plan.offset_count:,}) need "
            f"{FEATURE_NAME} {IMPORTED_GROUPS_LEVEL}, and the cluster is at {level}: raise it with chronik cluster "
            "upgrade"
        )
    found += _find_exceeded_limits(plan, image)
    if level < SECURITY_LEVEL and not plan.security.is_empty:
        found.append(
            f"{plan.security} need {FEATURE_NAME} {SECURITY_LEVEL}, and the cluster is at {level}: "
            "raise it with chronik cluster upgrade"
        )
    if level < SCHEMAS_LEVEL and not plan.registry.is_empty:
        found.append(
            f"{plan.registry} need {FEATURE_NAME} {SCHEMAS_LEVEL}, and the cluster is at {level}: "
            "raise it with chronik cluster upgrade"
        )
    found += find_registry_obstacles(plan.registry, image.schemas)[:NAMES_LISTED_MAX]
    names = {topic.name: topic.id for topic in plan.topics}
    taken = [name for name in names if name in image.topics]
    if taken:
        found.append(f"topics with these names already exist: {_join_names(taken)}")
    ids = [topic.name for topic in plan.topics if topic.id in image.topics_by_id and topic.name not in taken]
    if ids:
        found.append(f"topics with the same ids as these already exist: {_join_names(ids)}")
    colliding = [
        f"{name} and {other}"
        for name in names
        if (other := image.find_topic_by_metric_name(format_topic_metric_name(name))) is not None and other not in names
    ]
    if colliding:
        found.append(f"topic names must not differ only in '.' and '_': {_join_names(colliding)}")
    return found


def _find_exceeded_limits(plan: ImportPlan, image: Image) -> Iterator[str]:
    """Yield a sentence for each cluster limit that the import would exceed."""
    security = plan.security
    users = security.users.keys() | set(image.users.by_name)
    acls = {*security.acls, *image.acls}
    entities = security.quotas.keys() | set(image.quotas)
    for count, noun, limit in (
        (len(users), "users", USERS_MAX),
        (len(acls), "ACLs", ACLS_MAX),
        (len(entities), "entities with quotas", QUOTA_ENTITIES_MAX),
    ):
        if count > limit:
            yield f"the cluster would have {count:,} {noun}; the limit is {limit:,}"


def _join_names(names: Iterable[str]) -> str:
    each = list(names)
    more = f", and {len(each) - NAMES_LISTED_MAX} more" if len(each) > NAMES_LISTED_MAX else ""
    return ", ".join(each[:NAMES_LISTED_MAX]) + more


def build_begin_request(source: ImportSource, plan: ImportPlan) -> AlterImportRequest:
    """Return the AlterImport request that starts an import."""
    request = _build_import_request(source, ImportAction.BEGIN)
    request.source = source.name[:SOURCE_CHARACTERS_MAX]
    request.topic_count = len(plan.topics)
    request.producer_ids = plan.producer_ids
    return request


def build_topic_requests(
    source: ImportSource, plan: ImportPlan, factor_of: Callable[[Topic], int]
) -> Iterator[AlterImportRequest]:
    """Yield the AlterImport requests that create the imported topics."""
    for first in range(0, len(plan.topics), TOPICS_PER_REQUEST):
        request = _build_import_request(source, ImportAction.TOPICS)
        topics = plan.topics[first : first + TOPICS_PER_REQUEST]
        request.topics = [_build_import_topic(topic, plan, factor_of(topic)) for topic in topics]
        yield request


def _build_import_topic(topic: Topic, plan: ImportPlan, replication_factor: int) -> ImportTopic:
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
        configs=_build_import_configs(topic.configs),
    )


def build_group_requests(source: ImportSource, groups: Iterable[ImportedGroup]) -> Iterator[AlterImportRequest]:
    """Yield the requests that import groups and committed offsets, split so that each fits into one command."""
    request, entries, characters = _build_import_request(source, ImportAction.GROUPS), 0, 0
    for group in groups:
        own = len(group.group_id) + len(group.protocol_type)
        part: ImportGroup | None = None
        for offset in group.offsets or (None,):
            size = own + (0 if offset is None else len(offset.topic) + len(offset.metadata or ""))
            is_full = entries + 2 > IMPORTED_GROUPS_PER_COMMAND_MAX or characters + size > GROUPS_REQUEST_CHARACTERS_MAX
            if request.groups and is_full:
                yield request
                request, entries, characters, part = _build_import_request(source, ImportAction.GROUPS), 0, 0, None
            if part is None:
                part = ImportGroup(group_id=group.group_id, protocol_type=group.protocol_type)
                request.groups.append(part)
                entries += 1
                characters += own
            if offset is not None:
                part.offsets.append(_build_import_offset(offset))
                entries += 1
                characters += size - own
    if request.groups:
        yield request


def find_missing_groups(groups: Iterable[ImportedGroup], image: Image) -> Iterator[ImportedGroup]:
    """Yield the consumer groups and committed offsets that an interrupted import has not transferred yet."""
    for group in groups:
        offsets = tuple(
            each
            for each in group.offsets
            if image.offset(group.group_id, each.topic, each.partition) != _to_committed_offset(each)
        )
        if offsets or group.group_id not in image.groups:
            yield ImportedGroup(group.group_id, group.protocol_type, offsets)


def build_finish_request(source: ImportSource, groups: Sequence[ImportedGroup] = ()) -> AlterImportRequest:
    """Return the AlterImport request that finishes an import; below feature level 5, it also contains `groups`."""
    image, request = source.image, _build_import_request(source, ImportAction.FINISH)
    request.groups = [
        ImportGroup(
            group_id=each.group_id,
            protocol_type=each.protocol_type,
            offsets=list(map(_build_import_offset, each.offsets)),
        )
        for each in groups
    ]
    request.group_configs = [
        ImportGroupConfigs(group_id=group_id, configs=_build_import_configs(dict(configs)))
        for group_id, configs in image.group_configs.items()
    ]
    if source.is_backup:
        request.cluster_configs = _build_import_configs(dict(image.broker_configs.get(CLUSTER_DEFAULT, {})))
    return request


def _build_import_request(source: ImportSource, action: ImportAction) -> AlterImportRequest:
    return AlterImportRequest(import_id=source.id, action=action)


def _build_import_offset(offset: ImportedOffset) -> ImportOffset:
    return ImportOffset(
        topic=offset.topic,
        partition=offset.partition,
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_time_ms=offset.commit_time_ms,
        expire_time_ms=offset.expire_time_ms,
    )


def _to_committed_offset(offset: ImportedOffset) -> CommittedOffset:
    return CommittedOffset(
        offset.offset, offset.leader_epoch, offset.metadata, offset.commit_time_ms, offset.expire_time_ms
    )


def _build_import_configs(configs: dict[str, str]) -> list[ImportConfig]:
    return [ImportConfig(name=name, value=value) for name, value in configs.items()]
