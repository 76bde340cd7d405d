"""The start of an audit that covers only what was appended after an earlier one.

Brokers could look up the offset of a time, but they skip damaged batches, which an audit must find.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from chronik.pipeline.audit.data_directories import AuditInputError
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
