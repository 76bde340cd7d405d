"""Records on their way: many partitions at a time, each from where its log in the cluster ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from chronik.limits import MIB
from chronik.moving import failpoints
from chronik.moving.source import CannotMove, SourceLog
from chronik.moving.streams import ImportedStream, Stretch
from chronik.moving.target import PASSING, Key, Target
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.import_records import (
    ImportedPartition,
    ImportedPartitionResult,
    ImportRecordsRequest,
    ImportRecordsResponse,
)

REQUEST_BYTES: Final = 4 * MIB
PARTITIONS_AT_ONCE: Final = 250
"""Partitions that are under way together: each waits for the syncs of three disks, and all wait for the same ones."""


class Wanted(NamedTuple):
    """A partition of the source."""

    key: Key
    about: str
    log: SourceLog
    stream: Callable[[], ImportedStream]


class Carrier:
    """One partition under way."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.is_done = False
        self.reached = -1
        """Where the log in the cluster ends, as far as is known."""
        self._begin()

    def _begin(self) -> None:
        self._stretches: Iterator[Stretch] = iter(self.wanted.stream())
        self._stretch = next(self._stretches, None)
        self._end = self.wanted.log.end

    def portion(self) -> ImportedPartition:
        """Returns what is to be sent next; at the end a question, which is answered when all replicas have it."""
        (topic_id, index), stretch = self.wanted.key, self._stretch
        return ImportedPartition(
            topic_id=topic_id,
            partition=index,
            expected_end=self._end if stretch is None else stretch.first_offset,
            log_start_offset=self.wanted.log.start,
            records=None if stretch is None else stretch.data,
        )

    def answered(self, result: ImportedPartitionResult) -> int:
        """Takes in where the log in the cluster ends; returns how many records are there that were not known to be."""
        end, start, about = result.log_end_offset, self.wanted.log.start, self.wanted.about
        self.reached = end
        due = self._end if self._stretch is None else self._stretch.first_offset
        if end < due:  # a leader has less than another had, which was not committed: it is read and sent again
            self._begin()
        count = self._pass(end)
        if self._stretch is None:
            if end > self._end or result.log_start_offset > start:
                held = f"offsets {result.log_start_offset} to {end - 1}"
                raise CannotMove(f"{about} holds {held} in the cluster, and {start} to {self._end - 1} in the source")
            self.is_done = due == end == self._end and result.log_start_offset == start
        return count

    def _pass(self, end: int) -> int:
        count = 0
        while self._stretch is not None and self._stretch.end_offset <= end:
            count += self._stretch.record_count
            self._end = self._stretch.end_offset
            self._stretch = next(self._stretches, None)
        if self._stretch is not None and self._stretch.first_offset < end:
            rest = self._stretch.cut_before(end)
            if rest is None:
                raise CannotMove(f"{self.wanted.about} ends at {end} in the cluster, within a batch of the source")
            self._stretch = rest
        return count


def carry(target: Target, import_id: bytes, partitions: Sequence[Wanted], tell: Callable[[int, int], None]) -> None:
    """Brings all records into the cluster. `tell` hears how many partitions are whole, and how many records came.
    Raises CannotMove."""
    left, under_way = iter(partitions), dict[Key, Carrier]()
    done = records = 0
    target.progressed()
    while True:
        while len(under_way) < PARTITIONS_AT_ONCE and (wanted := next(left, None)) is not None:
            under_way[wanted.key] = Carrier(wanted)
        if not under_way:
            return
        why = "no partition has a leader"
        has_moved = False
        for leader, keys in target.by_leader(list(under_way)).items():
            answer = _send(target, import_id, leader, [under_way[key] for key in keys])
            if isinstance(answer, str):
                why = answer
                continue
            for result in answer.partitions:
                carrier = under_way[result.topic_id, result.partition]
                if result.error_code:
                    why = _passing(result, carrier.wanted.about)
                    continue
                before = carrier.reached
                records += carrier.answered(result)
                has_moved = has_moved or carrier.is_done or carrier.reached > before
                if carrier.is_done:
                    done += 1
                    del under_way[carrier.wanted.key]
            failpoints.reached(failpoints.REQUEST)
        tell(done, records)
        if has_moved:
            target.progressed()
        else:
            target.stuck(why)


def _send(target: Target, import_id: bytes, leader: int, carriers: Sequence[Carrier]) -> ImportRecordsResponse | str:
    """Returns why not, if it does not answer."""
    request = ImportRecordsRequest(import_id=import_id, timeout_ms=int(target.timeout_s * 1000))
    size = 0
    for carrier in carriers:
        portion = carrier.portion()
        request.partitions.append(portion)
        size += len(portion.records or b"")
        if size >= REQUEST_BYTES:
            break
    answer = target.ask(leader, request, ImportRecordsResponse, wait_s=target.timeout_s)
    return f"broker {leader} does not answer" if answer is None else answer


def _passing(result: ImportedPartitionResult, about: str) -> str:
    """Returns what will pass. Raises CannotMove for anything else."""
    code = ErrorCode(result.error_code)
    told = f"{about}: {result.error_message or code.message}"
    if code in PASSING:
        return told
    raise CannotMove(told)
