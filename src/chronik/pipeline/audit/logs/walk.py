"""Walks over the batches of one replica, file by file, and tells whatever is wrong with them alone.

Every batch is checked: that it is one, that its checksum is right, that it continues the one before in offsets, that
its leader epoch is the one that the history has for that offset, and that it holds as many records as it says. Damage
is stepped over: what follows is found by looking for the next batch whose checksum is right.

The node may be writing: files that vanish are looked for again under their new names, and what is not there yet is not
asked for, since nothing is read beyond the end that was planned.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, NamedTuple

from chronik.pipeline.audit.findings import Finding, Kind, Place
from chronik.pipeline.audit.folders import epochs_of, indexed_place, log_start_of
from chronik.pipeline.audit.logs.segment_reader import SegmentReader
from chronik.pipeline.reading.segment_files import SegmentFile, segments_of
from chronik.protocol.batch import BatchHeader, verify_crc
from chronik.protocol.errors import CorruptRecords
from chronik.protocol.records import decode_batch
from chronik.wording import counted

LISTINGS_MAX: Final = 20
"""A file may go away between listing and opening it, when retention or compaction takes it; not so often in a row."""

PRODUCERS_MAX: Final = 10_000
"""Producers whose last batch is remembered; beyond it all are forgotten, and a doubled batch may be overlooked."""


class Batch(NamedTuple):
    header: BatchHeader
    file: str
    position: int
    data: memoryview
    """All of the batch, from its base offset on."""
    is_good: bool
    """Its checksum is right, and it stands where it belongs."""


Event = Batch | Finding


@dataclass
class Walk:
    """The batches with offsets of [start, end), and what is wrong with them. Iterate once; then ask what was seen."""

    folder: str
    place: Place
    start: int
    end: int
    is_compacted: bool = False
    is_final: bool = True
    """No other walk goes on from `end`: whatever is missing up to there is told by this one."""
    must_reach_end: bool = True
    """The replica is in sync. One that is not may end anywhere."""
    is_continued: bool = False
    """Another walk has come up to `start`, and has looked at the batch that reaches across it."""
    due: int = field(init=False)
    """The offset up to which it has come."""
    _epoch: int = -1
    _epoch_start: int = 0
    _epoch_end: int = 0
    _producers: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    _ended: bool = False

    def __post_init__(self) -> None:
        self.due = self.start
        self._epochs, self._epochs_whole = epochs_of(self.folder)

    def __iter__(self) -> Iterator[Event]:
        if self.start >= self.end:
            return
        if not self._epochs_whole:
            says = "the history of leader epochs is damaged"
            yield self.place.finding(Kind.EPOCH, says, file=f"{self.folder}/leader-epochs")
        listings = 0
        while True:
            try:
                yield from self._files()
                return
            except FileNotFoundError:
                listings += 1
                if listings >= LISTINGS_MAX:
                    raise

    def _files(self) -> Iterator[Event]:
        segments = segments_of(self.folder)
        yield from self._lost_beginning(segments)
        begun = sum(each.base_offset <= self.due for each in segments)
        segments = segments[max(0, begun - 1) :]
        last: tuple[str, int] | None = None
        at = min([self.due, *(each.base_offset for each in segments[:1])])
        for segment, following in zip_longest(segments, segments[1:]):
            if self._ended or (segment.base_offset >= self.end and self.due >= self.end):
                return
            with SegmentReader(segment.path) as reader:
                position, at = yield from self._file(reader, segment, following, at)
                last = segment.path, position
        if self.due < self.end and not self._ended and self.is_final and self.must_reach_end:
            yield self._short(last)

    def _lost_beginning(self, segments: list[SegmentFile]) -> Iterator[Finding]:
        """Retention may have moved the log's start since this was planned; otherwise files are missing."""
        if not segments or segments[0].base_offset <= self.due:
            return
        first = segments[0]
        self.due = self.start = max(self.due, min(log_start_of(self.folder), self.end))
        if first.base_offset > self.due:
            end = min(first.base_offset, self.end)
            yield self._missing(self.due, end, first.path, 0)
            self.due = end

    # One file

    def _file(
        self, reader: SegmentReader, segment: SegmentFile, following: SegmentFile | None, at: int
    ) -> Generator[Event, None, tuple[int, int]]:
        """`at` is the offset that is due where the file begins. Returns the position up to which it was read, and the
        offset that is due there. Batches below `self.due` were looked at by an earlier walk."""
        position, at = self._shortcut(reader, segment, at)
        rest = self.end if following is None else following.base_offset  # where damage up to the file's end leads to
        is_sure = True  # of `at`, the offset that is due at `position`
        while True:
            header = reader.header(position)
            if at >= self.end and (header is None or header.base_offset >= at):
                self._ended = True
                break
            if header is None:
                if reader.is_room(position):
                    break
                position, at = yield from self._damage(reader, position, at, rest)
            elif at < self.due and (header.next_offset <= self.due or self._is_across(header)):
                is_sure = is_sure and header.base_offset == at
                position, at = position + header.size, max(at, header.next_offset)
                self.due = max(self.due, at)
            else:
                at = at if is_sure or header.base_offset > self.due else header.base_offset
                is_sure = True
                position, at = yield from self._batch(reader, segment, position, header, at, rest)
                if self._ended:
                    break
                self.due = max(self.due, at)
        return position, at

    def _shortcut(self, reader: SegmentReader, segment: SegmentFile, at: int) -> tuple[int, int]:
        """Skips batches that an earlier walk has looked at, if the index knows the way. It is not believed: a batch
        with that offset has to be there."""
        hint = indexed_place(segment, self.due) if at < self.due else None
        header = None if hint is None else reader.header(hint.position)
        if hint is None or header is None or header.base_offset != hint.offset:
            return 0, at
        return hint.position, hint.offset

    def _is_across(self, header: BatchHeader) -> bool:
        return self.is_continued and header.base_offset < self.start

    def _damage(
        self, reader: SegmentReader, position: int, at: int, rest: int
    ) -> Generator[Event, None, tuple[int, int]]:
        """Returns where it goes on, and with which offset."""
        found = reader.next_good(position + 1, at)
        after = max(at, reader.offset_at(found, rest))
        if after > self.due:
            yield self._unreadable(reader, position, max(at, self.due), found, after)
            self.due = min(after, max(self.end, self.due))
        return found, after

    def _batch(
        self, reader: SegmentReader, segment: SegmentFile, position: int, header: BatchHeader, at: int, rest: int
    ) -> Generator[Event, None, tuple[int, int]]:
        """Returns where it goes on, and with which offset."""
        behind = position + header.size
        data = reader.view(position, header.size)
        problem = self._out_of_place(reader, position, header, at)
        if header.base_offset >= self.end and (problem is None or problem.kind is Kind.MISSING_RECORDS):
            self._ended = True
            if problem is not None and self.is_final:
                yield self._missing(at, self.end, reader.path, position)
            return position, at
        if problem is not None:
            yield problem
        elif position == 0 and header.base_offset != segment.base_offset:
            says = f"the file is named for offset {segment.base_offset} and begins with {header.base_offset}"
            yield self._finding(Kind.HEADER, says, header, reader.path, position)
        is_displaced = problem is not None and problem.kind is Kind.HEADER
        is_good = verify_crc(data, 0, header.size)
        if is_good:
            yield from self._checked(header, data, reader.path, position)
        else:
            says = f"the checksum of the batch with offsets {_span(header)} does not match"
            yield self._finding(Kind.CHECKSUM, says, header, reader.path, position)
        yield Batch(header, reader.path, position, data, is_good and not is_displaced)
        if is_displaced:
            return behind, at + header.last_offset_delta + 1
        if is_good or reader.leads_on(behind, header):
            return behind, max(at, header.next_offset)
        found = reader.next_good(position + 1, at)
        return found, max(at, reader.offset_at(found, rest))

    def _out_of_place(self, reader: SegmentReader, position: int, header: BatchHeader, at: int) -> Finding | None:
        base, size = header.base_offset, header.last_offset_delta + 1
        if base == at:
            return None
        follower = reader.header(position + header.size)
        if follower is not None and follower.base_offset == at + size and follower.base_offset != header.next_offset:
            says = f"the batch says that it begins with offset {base}; those around it say {at}"
            return self.place.finding(
                Kind.HEADER, says, offset=at, end_offset=at + size, file=reader.path, position=position
            )
        if base < at:
            says = f"offsets {_span(header)} are there once more, where {at} is due"
            return self._finding(Kind.DUPLICATE_BATCH, says, header, reader.path, position)
        return self._missing(at, base, reader.path, position)

    def _checked(self, header: BatchHeader, data: memoryview, path: str, position: int) -> Iterator[Finding]:
        """Yields what is wrong with a batch whose bytes are right. Mostly nothing is, and then this costs little."""
        count = header.last_offset_delta + 1
        if header.record_count != count and (not self.is_compacted or header.record_count > count):
            yield self._miscounted(header, data, path, position)
        epoch, base = header.partition_leader_epoch, header.base_offset
        if epoch != self._epoch or not self._epoch_start <= base < self._epoch_end:  # not as the batch before
            yield from self._check_epoch(header, path, position)
        if header.producer_id >= 0 and not header.is_control:
            yield from self._check_producer(header, path, position)

    def _check_epoch(self, header: BatchHeader, path: str, position: int) -> Iterator[Finding]:
        epoch = header.partition_leader_epoch
        known, end = self._epochs.range_at(header.base_offset)
        if known != epoch and known >= 0:
            self._epochs, _ = epochs_of(self.folder)  # a new leader may have begun since
            known, end = self._epochs.range_at(header.base_offset)
        if epoch < self._epoch:
            says = f"the batch is of leader epoch {epoch}, behind one of {self._epoch}"
        elif known not in (epoch, -1) and self._epochs_whole:
            says = f"the batch is of leader epoch {epoch}, the node's history of epochs says {known}"
        else:
            self._epoch, self._epoch_start, self._epoch_end = epoch, header.base_offset, end
            return
        yield self._finding(Kind.EPOCH, says, header, path, position)

    def _check_producer(self, header: BatchHeader, path: str, position: int) -> Iterator[Finding]:
        """A producer numbers its batches: the same one, right behind itself, was written twice."""
        identity = header.producer_epoch, header.base_sequence, header.crc
        *before, offset = self._producers.get(header.producer_id, (0, 0, 0, 0))
        if tuple(before) == identity and header.producer_id in self._producers and offset != header.base_offset:
            says = (
                f"the batch with offsets {_span(header)} is the one at offset {offset} once more: "
                f"producer {header.producer_id}, sequence {header.base_sequence}"
            )
            yield self._finding(Kind.DUPLICATE_BATCH, says, header, path, position)
        if len(self._producers) >= PRODUCERS_MAX:
            self._producers.clear()
        self._producers[header.producer_id] = (*identity, header.base_offset)

    # What is wrong, in words

    def _finding(self, kind: Kind, says: str, header: BatchHeader, path: str, position: int) -> Finding:
        first, end = header.base_offset, header.next_offset
        return self.place.finding(kind, says, offset=first, end_offset=end, file=path, position=position)

    def _missing(self, first: int, end: int, path: str, position: int) -> Finding:
        says = f"offsets {first} to {end - 1} are missing" if end - first > 1 else f"offset {first} is missing"
        return self.place.finding(
            Kind.MISSING_RECORDS, says, offset=first, end_offset=end, file=path, position=position
        )

    def _miscounted(self, header: BatchHeader, data: memoryview, path: str, position: int) -> Finding:
        try:
            present = {record.offset for record in decode_batch(bytes(data))}
        except CorruptRecords as error:
            says = f"the batch with offsets {_span(header)} cannot be read: {error}"
            return self._finding(Kind.HEADER, says, header, path, position)
        absent = [each for each in range(header.base_offset, header.next_offset) if each not in present]
        first = absent[0] if absent else header.base_offset
        says = (
            f"the batch with offsets {_span(header)} holds {counted(header.record_count, 'record')}: "
            f"{_listed(absent)} {'is' if len(absent) == 1 else 'are'} missing"
        )
        return self.place.finding(
            Kind.MISSING_RECORDS, says, offset=first, end_offset=header.next_offset, file=path, position=position
        )

    def _unreadable(self, reader: SegmentReader, position: int, at: int, found: int, after: int) -> Finding:
        says = f"where offset {at} is due there is no batch"
        if found < reader.size:
            says += f"; the next good one, with offset {after}, stands at byte {found}"
        return self.place.finding(
            Kind.HEADER, says, offset=at, end_offset=max(at + 1, after), file=reader.path, position=position
        )

    def _short(self, last: tuple[str, int] | None) -> Finding:
        says = f"the log ends at offset {self.due}; the high watermark is {self.end}, and the node counts as in sync"
        file, position = last or (self.folder, None)
        return self.place.finding(
            Kind.SHORT_LOG, says, offset=self.due, end_offset=self.end, file=file, position=position
        )


def log_end(folder: str, offset: int) -> int:
    """Returns where the log ends, which is at `offset` or after it."""
    walk = Walk(folder, Place("", 0, 0), offset, 2**62, is_compacted=True, is_final=False, must_reach_end=False)
    for _ in walk:
        pass
    return walk.due


def _span(header: BatchHeader) -> str:
    return f"{header.base_offset} to {header.last_offset}"


def _listed(offsets: list[int]) -> str:
    shown = ", ".join(map(str, offsets[:5]))
    more = f" and {len(offsets) - 5} more" if len(offsets) > 5 else ""
    return f"{'offset' if len(offsets) == 1 else 'offsets'} {shown}{more}"
