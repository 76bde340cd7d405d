"""The plan of an import: what the source contains, and why a cluster cannot accept it. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from chronik.limits import ACLS_MAX, QUOTA_ENTITIES_MAX
from chronik.metadata.commands.imports import IMPORTED_OFFSETS_MAX, ImportedGroup, ImportedOffset
from chronik.metadata.handlers.users import USERS_MAX
from chronik.metadata.image import Image
from chronik.metadata.levels import FEATURE_NAME, IMPORTED_GROUPS_LEVEL, SECURITY_LEVEL, cluster_level
from chronik.metadata.names import topic_metric_name
from chronik.metadata.records import Topic
from chronik.migration.security_import import SecurityMetadata, read_security_metadata
from chronik.migration.source import ImportSource, SourceLog
from chronik.wording import pluralize

NAMES_LISTED_MAX: Final = 5
"""The maximum number of names listed in a message."""


class ImportPlan(NamedTuple):
    """The contents of an import."""

    topics: list[Topic]
    logs: dict[tuple[bytes, int], SourceLog]
    groups: list[ImportedGroup]
    producer_ids: int
    """One more than the highest producer id of the source."""
    security: SecurityMetadata

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
        """Return the number of offsets in all logs: an upper bound of the number of records."""
        return sum(log.end - log.start for log in self.logs.values())


def build_import_plan(source: ImportSource) -> ImportPlan:
    """Return the plan of importing a source.

    Raises:
        MigrationError: A log of the source is incomplete.
    """
    topics = source.topics()
    logs = {(topic.id, index): source.log(topic, index) for topic in topics for index in range(len(topic.partitions))}
    seen = max((log.producer_ids for log in logs.values()), default=0)
    groups, producer_ids = _groups(source.image, topics, logs), max(seen, source.image.next_producer_id)
    return ImportPlan(topics, logs, groups, producer_ids, read_security_metadata(source.image))


def _groups(image: Image, topics: Sequence[Topic], logs: dict[tuple[bytes, int], SourceLog]) -> list[ImportedGroup]:
    """Return the groups without members, with committed offsets limited to the imported records."""
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
    """Return the reasons why the cluster cannot accept the import, one sentence each."""
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
    level = cluster_level(image.features)
    if level < IMPORTED_GROUPS_LEVEL and plan.offset_count > IMPORTED_OFFSETS_MAX:
        found.append(
            f"more than {IMPORTED_OFFSETS_MAX:,} committed offsets ({plan.offset_count:,}) need "
            f"{FEATURE_NAME} {IMPORTED_GROUPS_LEVEL}, and the cluster is at {level}: raise it with chronik cluster "
            "upgrade"
        )
    found += _beyond_limits(plan, image)
    if level < SECURITY_LEVEL and not plan.security.is_empty:
        found.append(
            f"{plan.security} need {FEATURE_NAME} {SECURITY_LEVEL}, and the cluster is at {level}: "
            "raise it with chronik cluster upgrade"
        )
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
        if (other := image.topic_with_metric_name(topic_metric_name(name))) is not None and other not in names
    ]
    if colliding:
        found.append(f"topic names must not differ only in '.' and '_': {_join_names(colliding)}")
    return found


def _beyond_limits(plan: ImportPlan, image: Image) -> Iterator[str]:
    """Yield the limits that the cluster would exceed with the import."""
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
