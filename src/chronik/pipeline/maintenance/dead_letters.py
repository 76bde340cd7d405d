"""Dead-letter records: list them, and decode them again with the current rules (`chronik pipeline dlq list|retry`).

A record is in its table or in the dead-letter table, and only for a moment in both: a retry first appends the rows to
the table, and then removes the dead-letter records. This is exactly once, even with concurrent or killed retries,
because the table itself shows which records it has:

1. The retries of a table are numbered. A retry reads the next number, searches the table for its records, and appends
   the missing ones under that number. If another retry has taken the number, it starts over.
2. Only records below the table's next offset are tried. Others belong to a landing round that is not committed yet and
   may still decode them.
3. The dead-letter table counts the retries whose records are removed. If its count is behind, a retry was interrupted
   (or is running): records that the table has are not listed, and the next retry removes them first.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from chronik.formats.registry_client import RegistrySettings
from chronik.pipeline.maintenance.dead_letter_tasks import (
    RetryScan,
    RewrittenFile,
    find_offsets_in_table,
    read_dead_letter_offsets,
    rewrite_dead_letter_file,
    scan_dead_letters,
    write_decoded_rows,
)
from chronik.pipeline.registry_access import with_patience
from chronik.pipeline.spark.tasks import TaskRunner, run_locally
from chronik.pipeline.tables.catalog import list_existing_tables, list_topics_with_dead_letters, open_table
from chronik.pipeline.tables.commit_plan import SchemaChangedError, WrittenFile, WrittenFilesLostError
from chronik.pipeline.tables.layout import (
    ERROR,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_MS,
    VALUE,
    TableKind,
    restore_timestamps_ms,
)
from chronik.pipeline.tables.offset_sets import (
    OffsetSets,
    compute_offsets_mask,
    count_offsets,
    find_files_containing_offsets,
    subtract_offsets,
    union_offsets,
)
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.table_files import TableDescriptor, TableFiles, scan
from chronik.pipeline.tables.topic_table import SequenceConflictError, TableMismatchError, TableMissingError, TopicTable
from chronik.pipeline.tables.values.field_statistics import merge_statistics
from chronik.pipeline.tables.values.schema_evolution import has_unchanged_columns

RETRY_SEQUENCE = "retries"
"""Name of the sequence of commits that retry dead-letter records, by which an interrupted retry is detected."""

VALUE_BYTES_SHOWN = 200

FILES_PER_ROUND = 64
"""Number of dead-letter files retried in one commit. The offsets of their records are held in memory."""


# list


@dataclass(frozen=True, slots=True, order=True)
class DeadLetterRecord:
    """A record that could not be decoded, with its position and error."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    error: str
    value: bytes
    """The first bytes of the value."""
    value_bytes: int
    """Size of the complete value in bytes."""


@dataclass(frozen=True, slots=True)
class DeadLetterList:
    """The first dead-letter records, and the total number of such records."""

    letters: list[DeadLetterRecord]
    """The first records, by topic, partition and offset."""
    count: int
    """Total number of dead-letter records."""


def list_dead_letters(
    table_root: str,
    topics: Sequence[str] | None = None,
    *,
    limit: int = 100,
    storage_options: Mapping[str, str] | None = None,
) -> DeadLetterList:
    """List the records that could not be decoded, without starting Spark.

    Raises:
        TableMissingError: A topic has no table.
    """
    count = 0
    kept: list[DeadLetterRecord] = []
    for topic in _select_topics(table_root, topics, storage_options):
        pair = TablePair(table_root, topic, run_locally, storage_options)
        found = _CountingIterator(pair.iter_dead_letters())
        # With n = 0, `nsmallest` would not iterate, and the records would not be counted.
        kept = heapq.nsmallest(limit, (*kept, *heapq.nsmallest(max(1, limit), found)))
        count += found.count
    return DeadLetterList(kept, count)


class _CountingIterator:
    """An iterator that counts its elements."""

    def __init__(self, letters: Iterator[DeadLetterRecord]) -> None:
        self._letters = letters
        self.count = 0

    def __iter__(self) -> Iterator[DeadLetterRecord]:
        for letter in self._letters:
            self.count += 1
            yield letter


# retry


@dataclass(frozen=True, slots=True)
class RetryResult:
    """The result of retrying to decode the dead-letter records of one topic."""

    topic: str
    decoded: int
    """Number of rows that the retry appended to the table."""
    failing: int
    """Number of records that still cannot be decoded."""
    waiting: int = 0
    """Number of records in an uncommitted landing round, which were not retried."""


def retry_dead_letters(
    table_root: str,
    topics: Sequence[str] | None = None,
    *,
    tasks: TaskRunner = run_locally,
    files_per_round: int = FILES_PER_ROUND,
    progress: Callable[[int, int], None] = lambda done_files, all_files: None,
    storage_options: Mapping[str, str] | None = None,
    registry: RegistrySettings | None = None,
) -> list[RetryResult]:
    """Decode dead-letter records again, and append those that can now be decoded to their table, exactly once.

        retry_dead_letters("tables", ["orders"], tasks=spark_task_runner(spark))

    Schemas come from `registry`, or else from the one from which the table was landed.

    Raises:
        TableMissingError, TableMismatchError, TableCommitError, TaskFailedError: A table does not exist, cannot be used
            or changed, or a task failed.
    """
    done = []
    for topic in _select_topics(table_root, topics, storage_options):
        pair = TablePair(table_root, topic, tasks, storage_options, registry)
        done.append(pair.retry(files_per_round, progress))
    return done


def _select_topics(root: str, topics: Sequence[str] | None, storage_options: Mapping[str, str] | None) -> list[str]:
    found = list_topics_with_dead_letters(root, storage_options)
    if topics is None:
        if not found:
            list_existing_tables(root, storage_options)  # raises TableMissingError if there are no tables at all
        return found
    for topic in topics:
        if topic not in found:
            _ = open_table(table_uri(root, topic), storage_options).spec  # raises TableMissing, TableDiffers
    return [topic for topic in dict.fromkeys(topics) if topic in found]


class TablePair:
    """A topic's table and its dead-letter table, opened to retry the dead-letter records."""

    def __init__(
        self,
        root: str,
        topic: str,
        tasks: TaskRunner,
        storage_options: Mapping[str, str] | None,
        registry: RegistrySettings | None = None,
    ) -> None:
        self._topic = topic
        self._registry = registry
        self._tasks = tasks
        self._dead_letter_table = open_table(build_dead_letters_uri(root, topic), storage_options)
        self._table = self._open_table(table_uri(root, topic), self._dead_letter_table.spec.topic_id, storage_options)

    def _open_table(self, uri: str, topic_id: str, storage_options: Mapping[str, str] | None) -> TopicTable | None:
        """Open the topic's table, or return None if only dead-letter records have landed.

        Raises:
            TableMismatchError: The table is raw, or belongs to another topic.
        """
        try:
            table = open_table(uri, storage_options)
        except TableMissingError:
            return None
        if table.spec.kind is not TableKind.DECODED:
            raise TableMismatchError(f"{uri} is a raw table, which has no dead-letter records")
        if table.spec.topic_id != topic_id:
            raise TableMismatchError(
                f"{self._dead_letter_table.uri} and {uri} have the same topic name, but different topics"
            )
        return table

    # Listing

    def iter_dead_letters(self) -> Iterator[DeadLetterRecord]:
        letters = self._dead_letter_table.files()
        done = (
            {}
            if self._find_interrupted_retries() is None
            else self._find_offsets_in_table(self._read_dead_letter_offsets(letters))
        )
        for batch in scan(letters, [PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_MS, ERROR, VALUE]):
            yield from _convert_to_dead_letter_records(
                self._topic, batch.filter(pa.array(~compute_offsets_mask(batch, done)))
            )

    def _find_interrupted_retries(self) -> range | None:
        """Return the numbers of retries that appended rows but may not have removed dead-letter records, or None."""
        if self._table is None:
            return None
        # In this order, a running retry may look interrupted, but an interrupted one never looks complete.
        settled = self._dead_letter_table.next_sequence_number(RETRY_SEQUENCE)
        appended = self._table.next_sequence_number(RETRY_SEQUENCE)
        return range(settled, appended) if settled < appended else None

    def _read_dead_letter_offsets(self, letters: TableFiles) -> OffsetSets:
        return union_offsets(
            self._tasks(read_dead_letter_offsets, [letters.with_files(file) for file in letters.files])
        )

    def _find_offsets_in_table(self, wanted: OffsetSets) -> OffsetSets:
        assert self._table is not None
        return union_offsets(
            self._tasks(
                partial(find_offsets_in_table, wanted), find_files_containing_offsets(self._table.files(), wanted)
            )
        )

    # Retry

    def retry(self, files_per_round: int, progress: Callable[[int, int], None]) -> RetryResult:
        if self._table is None:
            return RetryResult(
                self._topic, 0, 0, count_offsets(self._read_dead_letter_offsets(self._dead_letter_table.files()))
            )
        self.finish_interrupted_retries()
        letters = self._dead_letter_table.files()
        decoded = failing = waiting = 0
        for first in range(0, len(letters.files), files_per_round):
            some = letters.files[first : first + files_per_round]
            rows, looked = self._retry_dead_letter_files(self._table, [letters.with_files(file) for file in some])
            decoded += rows
            failing += sum(each.failing for each in looked)
            waiting += sum(each.waiting for each in looked)
            progress(min(first + files_per_round, len(letters.files)), len(letters.files))
        return RetryResult(self._topic, decoded, failing, waiting)

    def finish_interrupted_retries(self) -> None:
        """Remove the dead-letter records of retries that have appended rows but were interrupted after that."""
        interrupted = self._find_interrupted_retries()
        if interrupted is not None:
            self._remove_landed_dead_letters(
                self._find_offsets_in_table(self._read_dead_letter_offsets(self._dead_letter_table.files()))
            )
            for number in interrupted:
                self._record_completed_retry(number)

    def _retry_dead_letter_files(self, table: TopicTable, letters: list[TableFiles]) -> tuple[int, list[RetryScan]]:
        """Retry the records of these files, and return the number of appended rows and the scan results."""
        while True:
            number = table.next_sequence_number(RETRY_SEQUENCE)
            snapshot = table.snapshot()
            current = self._with_registry(snapshot.descriptor)
            looked = self._tasks(partial(scan_dead_letters, current, snapshot.next_offsets), letters)
            decodable = union_offsets([each.decodable for each in looked])
            if not decodable:
                return 0, looked
            unknown_fields = merge_statistics([each.unknown_fields for each in looked])
            if not unknown_fields.is_empty:
                table.add_columns(unknown_fields)
            descriptor = self._with_registry(table.descriptor())
            if not is_same_decoding(snapshot.descriptor, descriptor):
                continue  # the new schema may decode other records
            missing = subtract_offsets(decodable, self._find_offsets_in_table(decodable))
            written = self._tasks(partial(write_decoded_rows, descriptor, missing), letters) if missing else []
            files = [file for each in written for file in each]
            if not self._append_retried_files(table, files, number, descriptor.schema):
                continue
            self._remove_landed_dead_letters(decodable)
            self._complete_retry(number)
            return sum(file.rows for file in files), looked

    def _with_registry(self, table: TableDescriptor) -> TableDescriptor:
        return replace(table, registry=with_patience(self._registry or table.registry))

    def _append_retried_files(
        self, table: TopicTable, files: Sequence[WrittenFile], number: int, written_with: pa.Schema
    ) -> bool:
        """Append the files as retry `number`. If the table rejects them, delete them and return False."""
        try:
            table.append_in_sequence(files, RETRY_SEQUENCE, number, written_with)
        except SequenceConflictError:
            live = {file.path for file in table.files().files}
            if any(file.path in live for file in files):
                return True  # this retry committed them, and the response was lost
        except (WrittenFilesLostError, SchemaChangedError):
            pass
        else:
            return True
        table.storage.discard_files(file.path for file in files)
        return False

    def _remove_landed_dead_letters(self, settled: OffsetSets) -> None:
        """Remove records that now have rows from the dead-letter table, even if their files change concurrently."""
        while settled:
            some = find_files_containing_offsets(self._dead_letter_table.files(), settled)
            rewritten = [each for each in self._tasks(partial(rewrite_dead_letter_file, settled), some) if each.removed]
            if not rewritten or self._replace_files(rewritten):
                return

    def _replace_files(self, rewritten: Sequence[RewrittenFile]) -> bool:
        """Replace the rewritten files; return False if a concurrent compaction or retry has replaced one of them."""
        written = [file for each in rewritten for file in each.written]
        return self._dead_letter_table.replace_files([each.file for each in rewritten], written, data_change=True)

    def _complete_retry(self, number: int) -> None:
        """Record that a retry has removed its dead-letter records, and complete earlier interrupted retries."""
        if self._dead_letter_table.next_sequence_number(RETRY_SEQUENCE) == number:
            self._record_completed_retry(number)
        else:
            self.finish_interrupted_retries()

    def _record_completed_retry(self, number: int) -> None:
        with suppress(SequenceConflictError):  # another retry has recorded it
            self._dead_letter_table.append_in_sequence((), RETRY_SEQUENCE, number)


def is_same_decoding(before: TableDescriptor, now: TableDescriptor) -> bool:
    """Return whether a table still decodes records as before, except that it may have more columns."""
    return before.value_schema == now.value_schema and has_unchanged_columns(now.schema, before.schema)


def _convert_to_dead_letter_records(topic: str, batch: pa.RecordBatch) -> Iterator[DeadLetterRecord]:
    rows = pa.Table.from_batches([batch])
    values = rows[VALUE]
    columns = (
        rows[PARTITION],
        rows[OFFSET],
        restore_timestamps_ms(rows),
        rows[ERROR],
        pc.binary_slice(values, 0, VALUE_BYTES_SHOWN),
        pc.binary_length(values),
    )
    for row in zip(*(column.to_pylist() for column in columns), strict=True):
        yield DeadLetterRecord(topic, *row)
