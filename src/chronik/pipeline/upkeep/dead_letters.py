"""Dead letters: which there are, and another try by today's rules (`chronik pipeline dlq list|retry`).

A record is in its table or among the dead letters, never in both, but for a moment: a retry first appends the rows to
the table, and then takes the letters away. What makes that exactly once, whoever else retries and wherever one is
killed, is that the table itself is asked which letters it has:

1. The retries of a table are numbered. A retry reads the next number, then looks for its letters in the table, and can
   append what is not there only as that number: if another retry came between, it looks again.
2. Only letters below the table's next offset are tried. Landing is done with those; the others belong to a round that
   has not ended, and that may yet decode them itself.
3. The table of dead letters counts along when letters were taken away. When it is behind, a retry was interrupted (or
   is at it): what the table has by now is not listed, and the next retry takes it away first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from chronik.pipeline.spark.tasks import Tasks, in_this_process
from chronik.pipeline.tables.files import TableFiles, scan
from chronik.pipeline.tables.layout import (
    ERROR,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_MS,
    VALUE,
    Kind,
    timestamps_ms_of,
)
from chronik.pipeline.tables.offset_sets import OffsetSets, are_among, count_of, files_with_any, joined, without
from chronik.pipeline.tables.opening import open_table, topics_with_dead_letters
from chronik.pipeline.tables.spans import FilesGone, WrittenFile
from chronik.pipeline.tables.storage import dead_letters_uri, table_uri
from chronik.pipeline.tables.topic_table import Superseded, TableDiffers, TableMissing, TopicTable
from chronik.pipeline.upkeep.dead_letter_tasks import (
    Looked,
    Rewritten,
    look,
    offsets_of,
    present,
    rewritten_without,
    write_rows,
)

RETRIES = "retries"

VALUE_BYTES_SHOWN = 200

FILES_PER_ROUND = 64
"""Files of dead letters. Each round is a commit, and holds the positions of its letters in memory."""


# list


@dataclass(frozen=True, slots=True, order=True)
class DeadLetter:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    error: str
    value: bytes
    """Its beginning."""
    value_bytes: int
    """The size of all of it."""


@dataclass(frozen=True, slots=True)
class Listing:
    letters: list[DeadLetter]
    """The first of them, by topic, partition and offset."""
    count: int
    """How many there are in all."""


def list_letters(
    table_root: str,
    topics: Sequence[str] | None = None,
    *,
    limit: int = 100,
    storage_options: Mapping[str, str] | None = None,
) -> Listing:
    """Lists letters that are still to be decoded. Needs no Spark. Raises TableMissing for a topic without a table."""
    count = 0
    kept: list[DeadLetter] = []
    for topic in _topics(table_root, topics, storage_options):
        pair = _Pair(table_root, topic, in_this_process, storage_options)
        found = _Counted(pair.open_letters())
        # (Of nothing, `nsmallest` would not even look at the letters.)
        kept = heapq.nsmallest(limit, (*kept, *heapq.nsmallest(max(1, limit), found)))
        count += found.count
    return Listing(kept, count)


class _Counted:
    def __init__(self, letters: Iterator[DeadLetter]) -> None:
        self._letters = letters
        self.count = 0

    def __iter__(self) -> Iterator[DeadLetter]:
        for letter in self._letters:
            self.count += 1
            yield letter


# retry


@dataclass(frozen=True, slots=True)
class Retried:
    topic: str
    decoded: int
    """Rows that this retry has appended to the table."""
    failing: int
    """Letters that stay."""
    waiting: int = 0
    """Letters of a batch that has not landed as a whole: not tried."""


def retry(
    table_root: str,
    topics: Sequence[str] | None = None,
    *,
    tasks: Tasks = in_this_process,
    files_per_round: int = FILES_PER_ROUND,
    progress: Callable[[int, int], None] = lambda done_files, all_files: None,
    storage_options: Mapping[str, str] | None = None,
) -> list[Retried]:
    """Decodes dead letters again; those that now decode go to their table, exactly once, the others stay.

        retry("tables", ["orders"], tasks=on_spark(spark))

    Raises TableMissing, TableDiffers, CommitFailed, TaskFailed.
    """
    done = []
    for topic in _topics(table_root, topics, storage_options):
        pair = _Pair(table_root, topic, tasks, storage_options)
        done.append(pair.retry(files_per_round, progress))
    return done


def _topics(root: str, topics: Sequence[str] | None, storage_options: Mapping[str, str] | None) -> list[str]:
    found = topics_with_dead_letters(root, storage_options)
    if topics is None:
        return found
    for topic in topics:
        if topic not in found:
            _ = open_table(table_uri(root, topic), storage_options).spec  # raises TableMissing, TableDiffers
    return [topic for topic in dict.fromkeys(topics) if topic in found]


class _Pair:
    """A table and its dead letters."""

    def __init__(self, root: str, topic: str, tasks: Tasks, storage_options: Mapping[str, str] | None) -> None:
        self._topic = topic
        self._tasks = tasks
        self._dead = open_table(dead_letters_uri(root, topic), storage_options)
        self._table = self._open_table(table_uri(root, topic), self._dead.spec.topic_id, storage_options)

    def _open_table(self, uri: str, topic_id: str, storage_options: Mapping[str, str] | None) -> TopicTable | None:
        """Returns None when nothing has landed yet but dead letters. Raises TableDiffers."""
        try:
            table = open_table(uri, storage_options)
        except TableMissing:
            return None
        if table.spec.kind is not Kind.DECODED:
            raise TableDiffers(f"{uri} takes any bytes: it has no dead letters")
        if table.spec.topic_id != topic_id:
            raise TableDiffers(f"{self._dead.uri} has letters of another topic than {uri}, which only has its name")
        return table

    # What is open

    def open_letters(self) -> Iterator[DeadLetter]:
        letters = self._dead.files()
        done = {} if self._table is None or self._behind() is None else self._in_table(self._offsets(letters))
        for batch in scan(letters, [PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_MS, ERROR, VALUE]):
            yield from _letters_of(self._topic, batch.filter(pa.array(~are_among(batch, done))))

    def _behind(self) -> range | None:
        """Returns the retries whose letters may still be there."""
        assert self._table is not None
        # In this order: a retry that goes on meanwhile may look interrupted, never the other way round.
        settled = self._dead.next_number(RETRIES)
        appended = self._table.next_number(RETRIES)
        return range(settled, appended) if settled < appended else None

    def _offsets(self, letters: TableFiles) -> OffsetSets:
        return joined(self._tasks(offsets_of, [letters.with_files(file) for file in letters.files]))

    def _in_table(self, wanted: OffsetSets) -> OffsetSets:
        assert self._table is not None
        return joined(self._tasks(partial(present, wanted), files_with_any(self._table.files(), wanted)))

    # Another try

    def retry(self, files_per_round: int, progress: Callable[[int, int], None]) -> Retried:
        if self._table is None:
            return Retried(self._topic, 0, 0, count_of(self._offsets(self._dead.files())))
        self._finish_interrupted()
        letters = self._dead.files()
        decoded = failing = waiting = 0
        for first in range(0, len(letters.files), files_per_round):
            some = letters.files[first : first + files_per_round]
            rows, looked = self._retry_some(self._table, [letters.with_files(file) for file in some])
            decoded += rows
            failing += sum(each.failing for each in looked)
            waiting += sum(each.waiting for each in looked)
            progress(min(first + files_per_round, len(letters.files)), len(letters.files))
        return Retried(self._topic, decoded, failing, waiting)

    def _finish_interrupted(self) -> None:
        behind = self._behind()
        if behind is not None:
            self._take_away(self._in_table(self._offsets(self._dead.files())))
            for number in behind:
                self._count_along(number)

    def _retry_some(self, table: TopicTable, letters: list[TableFiles]) -> tuple[int, list[Looked]]:
        """Returns how many rows were appended, and what was found."""
        while True:
            number = table.next_number(RETRIES)
            snapshot = table.snapshot()
            looked = self._tasks(partial(look, snapshot.frozen, snapshot.next_offsets), letters)
            decodable = joined([each.decodable for each in looked])
            if not decodable:
                return 0, looked
            wanted = [field for each in looked for field in each.wanted]
            if wanted:
                table.add_columns(wanted)
            fresh = without(decodable, self._in_table(decodable))
            written = self._tasks(partial(write_rows, table.frozen(), fresh), letters) if fresh else []
            files = [file for each in written for file in each]
            if not self._append(table, files, number):
                continue
            self._take_away(decodable)
            self._settle(number)
            return sum(file.rows for file in files), looked

    def _append(self, table: TopicTable, files: Sequence[WrittenFile], number: int) -> bool:
        """Says whether the table has these files, as this number; otherwise they are gone."""
        try:
            table.append_numbered(files, RETRIES, number)
        except Superseded:
            live = {file.path for file in table.files().files}
            if any(file.path in live for file in files):
                return True  # it was us, and the answer got lost
        except FilesGone:
            pass
        else:
            return True
        table.storage.discard(file.path for file in files)
        return False

    def _take_away(self, settled: OffsetSets) -> None:
        """Removes them from the dead letters, wherever they are by now."""
        while settled:
            some = files_with_any(self._dead.files(), settled)
            rewritten = [each for each in self._tasks(partial(rewritten_without, settled), some) if each.removed]
            if not rewritten or self._replaced(rewritten):
                return

    def _replaced(self, rewritten: Sequence[Rewritten]) -> bool:
        """Says whether they are; not if another (a compaction, a second retry) has replaced one of the files."""
        written = [file for each in rewritten for file in each.written]
        return self._dead.replace([each.file for each in rewritten], written, rows_change=True)

    def _settle(self, number: int) -> None:
        """Notes that the letters of this retry are gone, and finishes an earlier one whose letters may not be."""
        if self._dead.next_number(RETRIES) == number:
            self._count_along(number)
        else:
            self._finish_interrupted()

    def _count_along(self, number: int) -> None:
        with suppress(Superseded):  # another has said so
            self._dead.append_numbered((), RETRIES, number)


def _letters_of(topic: str, batch: pa.RecordBatch) -> Iterator[DeadLetter]:
    rows = pa.Table.from_batches([batch])
    values = rows[VALUE]
    columns = (
        rows[PARTITION],
        rows[OFFSET],
        timestamps_ms_of(rows),
        rows[ERROR],
        pc.binary_slice(values, 0, VALUE_BYTES_SHOWN),
        pc.binary_length(values),
    )
    for row in zip(*(column.to_pylist() for column in columns), strict=True):
        yield DeadLetter(topic, *row)
