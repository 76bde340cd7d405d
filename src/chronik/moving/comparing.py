"""Whether what came into the cluster is what the source has: every byte of every log, then configs, groups, offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from chronik.crc import crc32c
from chronik.limits import MIB
from chronik.metadata.commands.imports import ImportedGroup
from chronik.metadata.image import Image
from chronik.metadata.records import Topic
from chronik.moving.carrying import PARTITIONS_AT_ONCE, Wanted
from chronik.moving.source import CannotMove
from chronik.moving.streams import Stretch
from chronik.moving.target import PASSING, Key, Target
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.fetch_imported import (
    FetchImportedPartition,
    FetchImportedRequest,
    FetchImportedResponse,
    FetchImportedResult,
)
from chronik.wording import counted

ANSWER_BYTES: Final = 8 * MIB


class Compared(NamedTuple):
    """What was found the same."""

    partitions: int = 0
    records: int = 0
    size_bytes: int = 0
    checksum: int = 0
    """Over all partitions, in the order of their topics' names."""


class _Comparison:
    """One partition under way: what it should hold from where the cluster was last asked."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._stretches: Iterator[Stretch] = iter(wanted.stream())
        self._stretch = next(self._stretches, None)
        self._position = 0
        self._end = wanted.log.end
        self.offset = wanted.log.start  # which may lie within the first batch
        self.records = self.size_bytes = self.checksum = 0
        self.is_done = False

    @property
    def bytes_due(self) -> int:
        return 0 if self._stretch is None else len(self._stretch.data) - self._position

    def answered(self, result: FetchImportedResult) -> bool:
        """Returns whether it got on. Raises CannotMove where they differ."""
        about, start = self.wanted.about, self.wanted.log.start
        data = bytes(result.records or b"")
        if self._stretch is not None:
            if not data:
                return False
            if data != self._stretch.data[self._position : self._position + len(data)]:
                raise CannotMove(f"{about} differs from the source at offset {self.offset}, or soon after")
            self.checksum = crc32c(data, self.checksum)
            self.size_bytes += len(data)
            self._position += len(data)
            if not self.bytes_due:
                self.records += self._stretch.record_count
                self.offset = self._end = self._stretch.end_offset
                self._stretch, self._position = next(self._stretches, None), 0
            else:
                self.offset = _first_offset(self._stretch.data, self._position)
        if self._stretch is None:
            ends = result.log_start_offset, result.high_watermark, result.last_stable_offset
            if ends != (start, self._end, self._end):
                raise CannotMove(
                    f"{about}: it begins, ends and is decided at {ends} in the cluster, "
                    f"and at {(start, self._end, self._end)} in the source"
                )
            self.is_done = True
        return True


def _first_offset(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 8], "big")


def compare_records(
    target: Target, import_id: bytes, partitions: Sequence[Wanted], tell: Callable[[int, int], None]
) -> Compared:
    """Reads everything back from the leaders. `tell` hears how many partitions and records are found the same. Raises
    CannotMove."""
    left, under_way = iter(partitions), dict[Key, _Comparison]()
    whole: dict[Key, _Comparison] = {}
    records = 0
    target.progressed()
    while True:
        while len(under_way) < PARTITIONS_AT_ONCE and (wanted := next(left, None)) is not None:
            under_way[wanted.key] = _Comparison(wanted)
        if not under_way:
            break
        has_moved, why = False, "no partition has a leader"
        for leader, keys in target.by_leader(list(under_way)).items():
            answer = target.ask(leader, _question(import_id, under_way, keys), FetchImportedResponse)
            if answer is None:
                why = f"broker {leader} does not answer"
                continue
            for result in answer.partitions:
                comparison = under_way[result.topic_id, result.partition]
                code = ErrorCode(result.error_code)
                if code:
                    why = f"{comparison.wanted.about}: {result.error_message or code.message}"
                    if code not in PASSING:
                        raise CannotMove(why)
                    continue
                has_moved = comparison.answered(result) or has_moved
                if comparison.is_done:
                    whole[comparison.wanted.key] = under_way.pop(comparison.wanted.key)
                    records += comparison.records
        tell(len(whole), records)
        if has_moved:
            target.progressed()
        else:
            target.stuck(why)
    return _sum([whole[wanted.key] for wanted in partitions])


def _question(import_id: bytes, under_way: dict[Key, _Comparison], keys: Sequence[Key]) -> FetchImportedRequest:
    request, left = FetchImportedRequest(import_id=import_id), ANSWER_BYTES
    for key in keys:
        comparison = under_way[key]
        request.partitions.append(
            FetchImportedPartition(
                topic_id=key[0],
                partition=key[1],
                fetch_offset=comparison.offset,
                max_bytes=max(1, comparison.bytes_due),
            )
        )
        left -= comparison.bytes_due
        if left <= 0:
            break
    return request


def _sum(comparisons: Sequence[_Comparison]) -> Compared:
    checksum = 0
    for each in comparisons:
        checksum = crc32c(each.checksum.to_bytes(4, "big"), checksum)
    return Compared(
        len(comparisons),
        sum(each.records for each in comparisons),
        sum(each.size_bytes for each in comparisons),
        checksum,
    )


def differences(image: Image, topics: Sequence[Topic], groups: Sequence[ImportedGroup]) -> list[str]:
    """Returns where the cluster's image, after the import, has other topics, configs or offsets. What clients have
    committed since is theirs."""
    found = []
    for topic in topics:
        known = image.topics.get(topic.name)
        if known is None or known.id != topic.id:
            found.append(f"topic {topic.name} is not there, or another one has its name")
        elif (len(known.partitions), known.configs) != (len(topic.partitions), topic.configs):
            count = counted(len(known.partitions), "partition")
            found.append(f"topic {topic.name} has {count} and configs {known.configs}")
    for group in groups:
        if group.offsets and group.group_id not in image.groups:  # one without offsets may have expired
            found.append(f"group {group.group_id} is not there")
        for each in group.offsets:
            committed = image.offset(group.group_id, each.topic, each.partition)
            if committed is None or (committed.commit_time_ms, committed.offset) < (each.commit_time_ms, each.offset):
                found.append(f"group {group.group_id} lacks its offset {each.offset} of {each.topic}-{each.partition}")
    return found
