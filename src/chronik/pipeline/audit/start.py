"""The start of an audit that covers only what was appended after an earlier one, after a time, or from offsets on.

The offset of a time is looked up in the data directories. Brokers skip damaged batches, which an audit must find.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from chronik.pipeline.audit.data_directories import AuditInputError, find_offset_of_time
from chronik.pipeline.audit.partition_plan import AuditedPartition

PartitionKey: TypeAlias = tuple[str, int]
"""The topic id and the number of a partition: a topic that was created again starts at offset 0."""


class _PartitionEnd(msgspec.Struct):
    topic_id: str
    partition: int
    end: int


class _EarlierReport(msgspec.Struct):
    ends: list[_PartitionEnd]


@dataclass(frozen=True, slots=True)
class AuditStart:
    """Where an audit starts in each partition."""

    offsets: Mapping[PartitionKey, int]
    """Offsets by partition; partitions without one are audited completely."""


@dataclass(frozen=True, slots=True)
class AuditPoint:
    """Where an audit starts in a topic: at a time or at offsets."""

    timestamp_ms: int | None = None
    """Records before the first one with this timestamp or a later one are skipped; None to start at offsets."""
    offset: int = 0
    """The offset at which partitions start that `offsets` does not name."""
    offsets: Mapping[int, int] = field(default_factory=dict)
    """Offsets by partition."""


OTHER_TOPICS: Final = ""
"""The key of the point at which topics start that have none of their own."""

AuditPoints: TypeAlias = Mapping[str, AuditPoint]
"""The points at which an audit starts, by topic. Topics without one are audited completely."""


def resolve_points(points: AuditPoints, partitions: Iterable[AuditedPartition]) -> AuditStart:
    """Return the offsets at which an audit from these points starts.

    Raises:
        AuditInputError: A point names a topic or a partition that is not audited.
    """
    audited: dict[str, list[AuditedPartition]] = {}
    for each in partitions:
        audited.setdefault(each.topic, []).append(each)
    for topic, point in points.items():
        known = {each.index for each in audited.get(topic, ())}
        if topic != OTHER_TOPICS and not known:
            raise AuditInputError(f"cannot start in topic {topic}: it is not audited")
        if topic != OTHER_TOPICS and not point.offsets.keys() <= known:
            raise AuditInputError(f"cannot start in partition {min(point.offsets.keys() - known)} of {topic}: unknown")
    return AuditStart(
        {
            (each.topic_id, each.index): _find_offset(chosen, each)
            for topic, found in audited.items()
            if (chosen := points.get(topic) or points.get(OTHER_TOPICS)) is not None
            for each in found
        }
    )


def _find_offset(point: AuditPoint, partition: AuditedPartition) -> int:
    time_ms = point.timestamp_ms
    if time_ms is None:
        return point.offsets.get(partition.index, point.offset)
    found = (find_offset_of_time(replica.directory, time_ms) for replica in partition.replicas)
    return min((offset for offset in found if offset is not None), default=0)


def read_start_from_report(path: Path) -> AuditStart:
    """Return the start of an audit that continues the one whose JSON report is in a file.

    Raises:
        AuditInputError: The file cannot be read, or is no such report.
    """
    try:
        report = msgspec.json.decode(path.read_bytes(), type=_EarlierReport)
    except OSError as error:
        raise AuditInputError(f"{path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, UnicodeError):
        raise AuditInputError(f"{path} is not the report of an audit: write it with --json") from None
    return AuditStart(offsets={(each.topic_id, each.partition): each.end for each in report.ends})


def build_ends(partitions: Iterable[AuditedPartition]) -> list[dict[str, Any]]:
    """Return the ends of the audited partitions for the JSON report, from which a later audit continues."""
    return [
        {"topic": each.topic, "topic_id": each.topic_id, "partition": each.index, "end": each.end}
        for each in partitions
    ]


def skip_earlier_records(partitions: Iterable[AuditedPartition], start: AuditStart | None) -> list[AuditedPartition]:
    """Return partitions that start where the audit starts."""
    if start is None:
        return list(partitions)
    return [_skip_records_before(each, start.offsets.get((each.topic_id, each.index), 0)) for each in partitions]


def _skip_records_before(partition: AuditedPartition, offset: int) -> AuditedPartition:
    offset = min(offset, partition.end)
    return partition if offset <= partition.start else replace(partition, start=offset, log_start=partition.start)
