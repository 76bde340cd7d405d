"""What an import would bring, and why it cannot: found out before anything is done. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from chronik.metadata.commands.imports import IMPORTED_OFFSETS_MAX, ImportedGroup, ImportedOffset
from chronik.metadata.image import Image
from chronik.metadata.levels import FEATURE, SECURITY, level_of
from chronik.metadata.names import metric_name
from chronik.metadata.records import Topic
from chronik.moving.security import Security, security_of
from chronik.moving.source import Source, SourceLog

REFUSALS_SHOWN: Final = 5


class Plan(NamedTuple):
    topics: list[Topic]
    logs: dict[tuple[bytes, int], SourceLog]
    groups: list[ImportedGroup]
    producer_ids: int
    """One more than the highest that the source has seen."""
    security: Security

    @property
    def partition_count(self) -> int:
        return len(self.logs)

    @property
    def offset_count(self) -> int:
        return sum(len(group.offsets) for group in self.groups)

    @property
    def extent(self) -> int:
        """Offsets from starts to ends: as many records, unless some were compacted away."""
        return sum(log.end - log.start for log in self.logs.values())


def plan_of(source: Source) -> Plan:
    """Raises CannotMove when a log is not whole."""
    topics = source.topics()
    logs = {(topic.id, index): source.log(topic, index) for topic in topics for index in range(len(topic.partitions))}
    seen = max((log.producer_ids for log in logs.values()), default=0)
    groups, producer_ids = _groups(source.image, topics, logs), max(seen, source.image.next_producer_id)
    return Plan(topics, logs, groups, producer_ids, security_of(source.image))


def _groups(image: Image, topics: Sequence[Topic], logs: dict[tuple[bytes, int], SourceLog]) -> list[ImportedGroup]:
    """Without members, and with offsets no further than the records that come along."""
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


def refusals(plan: Plan, source: Source, image: Image) -> list[str]:
    """Returns why the cluster with this image cannot take it, one sentence each."""
    found = []
    known = image.imported
    if known is not None and not known.is_finished and known.id != source.id:
        found.append(
            f"{known.source} is being imported, or this one has changed since its import began: "
            "go on with that, or give it up with --give-up"
        )
    if source.is_backup and (known is None or known.id != source.id):
        own = sorted(topic.name for topic in image.topics.values() if not topic.internal)
        if own or image.groups:
            found.append(f"a backup is restored into an empty cluster, and this one has {_some(own or image.groups)}")
    if plan.offset_count > IMPORTED_OFFSETS_MAX:
        found.append(f"{plan.offset_count} committed offsets are more than {IMPORTED_OFFSETS_MAX}")
    level = level_of(image.features)
    if level < SECURITY and not plan.security.is_empty:
        found.append(
            f"{plan.security} need {FEATURE} {SECURITY}, and the cluster is at {level}: "
            "raise it with chronik cluster upgrade"
        )
    names = {topic.name: topic.id for topic in plan.topics}
    taken = [name for name in names if name in image.topics]
    if taken:
        found.append(f"topics of these names are there already: {_some(taken)}")
    ids = [topic.name for topic in plan.topics if topic.id in image.topics_by_id and topic.name not in taken]
    if ids:
        found.append(f"topics with the ids of these are there already: {_some(ids)}")
    alike = [
        f"{name} and {other}"
        for name in names
        if (other := image.name_with_metric(metric_name(name))) is not None and other not in names
    ]
    if alike:
        found.append(f"names may not differ in '.' and '_' alone: {_some(alike)}")
    return found


def _some(names: Iterable[str]) -> str:
    each = list(names)
    more = f", and {len(each) - REFUSALS_SHOWN} more" if len(each) > REFUSALS_SHOWN else ""
    return ", ".join(each[:REFUSALS_SHOWN]) + more
