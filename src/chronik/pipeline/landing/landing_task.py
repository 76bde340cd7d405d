"""One landing task, on an executor: write ranges of a topic as Parquet files, and return the files to the driver.

Rows never leave the executor. A task writes all of its ranges or nothing: the files of a failed attempt are deleted,
and vacuum removes those of a killed one.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.errors import ChronikError
from chronik.formats.registry_client import RegistryUnavailableError
from chronik.pipeline import CLIENT_ID, failpoints
from chronik.pipeline.landing.round_plan import RangeBundle
from chronik.pipeline.records.columns import ColumnSelection, RecordColumns
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.options import ReadSettings
from chronik.pipeline.source.range_reader import read_columns, read_skipping_deleted
from chronik.pipeline.tables.commit_plan import TaskOutput, WrittenFile, exclude_committed_offsets
from chronik.pipeline.tables.layout import (
    OFFSET,
    PARTITION,
    RESCUED,
    SYSTEM_NAMES,
    VALUE,
    build_table_batch,
    system_columns,
)
from chronik.pipeline.tables.offset_sets import OffsetSets, compute_offsets_mask
from chronik.pipeline.tables.parquet import CODEC
from chronik.pipeline.tables.table_files import TableDescriptor, TableFiles, scan
from chronik.pipeline.tables.values.field_statistics import FieldStatistics
from chronik.pipeline.tables.values.record_rebuild import encode_json_values, list_source_columns
from chronik.pipeline.tables.values.row_decoder import (
    DECODE_BATCH_ROWS,
    DecodedRows,
    RowDecoder,
    collect_statistics,
)
from chronik.pipeline.tables.values.schema_evolution import plan_new_columns
from chronik.protocol.errors import KafkaError

logger = logging.getLogger("chronik.pipeline")

WARNINGS_MAX = 20


@dataclass(frozen=True, slots=True)
class LandingTask:
    """A Spark task that reads offset ranges of a topic and writes the records to files of its tables."""

    topic: str
    ranges: RangeBundle
    read: ReadSettings
    table: TableDescriptor
    dead_letters: TableDescriptor | None = None
    """The dead-letter table, or None if the table stores values undecoded."""
    dead_letter_next_offsets: Mapping[int, int] = field(default_factory=dict)
    """Next offset of each partition in the dead-letter table. It is ahead of the table's after an interrupted
    commit."""
    dead_letters_ahead: OffsetSets = field(default_factory=dict)
    """Offsets of dead-letter records that were committed ahead of the table and must not be written again."""
    allow_data_loss: bool = False
    """Whether to skip records that retention has deleted, instead of failing."""
    may_request_columns: bool = True
    """Whether to request columns for new fields, instead of storing them in `_rescued`."""
    codec: str = CODEC
    """Compression codec of the Parquet files."""
    source: TableFiles | None = None
    """Files of a decoded table to read the records from, instead of the topic."""
    bytes_max: int | None = None
    """Maximum bytes of keys and values to read; a task with more writes nothing. None for no limit."""

    @property
    def offset_count(self) -> int:
        """Number of offsets in the task's ranges: an upper bound of the number of records."""
        return sum(each.end - each.start for each in self.ranges)


@dataclass(frozen=True, slots=True)
class LandingTaskResult:
    """The result of a landing task: the files it wrote, or the reason why it wrote none."""

    output: TaskOutput | None = None
    dead_letter_output: TaskOutput | None = None
    """Files of dead-letter records, or None if there are none."""
    late_dead_letters: tuple[WrittenFile, ...] = ()
    """Files of dead-letter records below `dead_letter_next_offsets` that earlier rounds did not detect."""
    unknown_fields: FieldStatistics | None = None
    """Statistics of fields for which columns must be added. If not None, the task wrote nothing."""
    misfits: Mapping[str, int] = field(default_factory=dict)
    """Number of values that did not fit their column's type, by column name."""
    error: str | None = None
    """The error of a failed task, which wrote nothing; None if it succeeded."""
    is_registry_unavailable: bool = False
    """Whether the task failed because the schema registry does not respond."""
    is_too_large: bool = False
    """Whether the task wrote nothing because its records exceed `bytes_max`."""
    read_bytes: int = 0
    """Bytes of the keys and values that were read."""
    ran_in_driver: bool = False
    """Whether the task ran in the driver's process, not on Spark."""
    warnings: tuple[str, ...] = ()


def run_landing_tasks(tasks: Sequence[LandingTask]) -> list[LandingTaskResult]:
    """Run the landing tasks of one driver one after the other, with one client for all of them."""
    if not tasks:
        return []
    with ClusterClient(tasks[0].read.bootstrap, client_id=CLIENT_ID) as client:
        with suppress(ClientError, KafkaError):  # the tasks report it
            client.refresh_topics(list(dict.fromkeys(task.topic for task in tasks)))
        return [run_landing_task(task, client) for task in tasks]


def run_landing_task(task: LandingTask, client: ClusterClient | None = None) -> LandingTaskResult:
    """Write the records of a landing task to files, and return the files or the error.

    `client` reads the records; None for a client of the task's own.

    Errors are returned, not raised: a topic that cannot be read must not fail the Spark job that lands others too.
    """
    with _collect_warnings() as warnings:
        reader = _RecordReader(task, client)
        try:
            with _disable_garbage_collection():
                outcome = (
                    _land_raw_records(task, reader)
                    if task.dead_letters is None
                    else _land_decoded_records(task, task.dead_letters, reader)
                )
        except _TaskTooLargeError:
            outcome = LandingTaskResult(is_too_large=True)
        except RegistryUnavailableError as error:
            outcome = LandingTaskResult(error=str(error), is_registry_unavailable=True)
        except ChronikError as error:
            outcome = LandingTaskResult(error=str(error))
        except Exception as error:
            logger.exception("topic %s: landing task failed unexpectedly", task.topic)
            outcome = LandingTaskResult(error=f"{type(error).__name__}: {error}")
    return replace(outcome, warnings=tuple(warnings[:WARNINGS_MAX]), read_bytes=reader.bytes)


class _TaskTooLargeError(Exception):
    """The keys and values of a landing task's records exceed the limit `bytes_max`."""


class _RecordReader:
    """A reader of a task's records that counts their bytes."""

    def __init__(self, task: LandingTask, client: ClusterClient | None = None) -> None:
        self._task = task
        self._client = client
        self.bytes = 0

    def __iter__(self) -> Iterator[tuple[int, RecordColumns]]:
        """Yield the records with their partition. Raises _TaskTooLargeError beyond the task's `bytes_max`."""
        task = self._task
        for offsets_range in task.ranges:
            target = OffsetRange(task.topic, offsets_range.partition, offsets_range.start, offsets_range.end)
            read = read_skipping_deleted if task.allow_data_loss else read_columns
            for records in read(target, task.read, ColumnSelection(), self._client):
                self.bytes += sum(each.nbytes for each in (records.key, records.value) if each is not None)
                if task.bytes_max is not None and self.bytes > task.bytes_max:
                    raise _TaskTooLargeError
                yield offsets_range.partition, records


def _land_raw_records(task: LandingTask, reader: _RecordReader) -> LandingTaskResult:
    failpoints.hit_failpoint(failpoints.BEFORE_FILES)
    schema = task.table.schema
    with task.table.writer(codec=task.codec) as writer:
        for partition, records in reader:
            writer.write(build_table_batch(system_columns(partition, records, schema.names), schema))
    failpoints.hit_failpoint(failpoints.AFTER_FILES)
    return LandingTaskResult(TaskOutput(task.ranges, writer.files))


class _NewFieldsFound(Exception):
    """Records have new fields for which columns must be added, so the files written so far are discarded."""


def _land_decoded_records(
    task: LandingTask, dead_letter_table: TableDescriptor, reader: _RecordReader
) -> LandingTaskResult:
    failpoints.hit_failpoint(failpoints.BEFORE_FILES)
    decoder = task.table.row_decoder(stops_at_new_types=task.may_request_columns)
    chunks = _decode_records(task, reader, decoder)
    unknown_fields = FieldStatistics()
    try:
        outcome = _write_decoded_rows(task, dead_letter_table, chunks, unknown_fields)
    except _NewFieldsFound:
        # Read the remaining records too, so that the second attempt has every column that it needs.
        for chunk in chunks:
            unknown_fields.merge(collect_statistics(chunk.unknown_fields))
        return LandingTaskResult(unknown_fields=unknown_fields)
    failpoints.hit_failpoint(failpoints.AFTER_FILES)
    return outcome


def _write_decoded_rows(
    task: LandingTask,
    dead_letter_table: TableDescriptor,
    chunks: Iterator[DecodedRows],
    unknown_fields: FieldStatistics,
) -> LandingTaskResult:
    schema, codec = task.table.schema, task.codec
    misfits: Counter[str] = Counter()
    with (
        task.table.writer(codec=codec) as writer,
        dead_letter_table.writer(codec=codec) as dead_writer,
        dead_letter_table.writer(codec=codec) as late_writer,
    ):
        for chunk in chunks:
            if task.may_request_columns and chunk.unknown_fields:
                unknown_fields.merge(collect_statistics(chunk.unknown_fields))
                if plan_new_columns(task.table.value_schema, schema, unknown_fields).added:
                    raise _NewFieldsFound
            misfits.update(chunk.misfits)
            writer.write(build_table_batch(chunk.rows, schema))
            if chunk.dead_letters is not None:
                dead = build_table_batch(chunk.dead_letters, dead_letter_table.schema)
                are_late = _compute_below_offsets_mask(dead, task.dead_letter_next_offsets)
                dead_writer.write(dead.filter(pc.invert(are_late)))
                late_writer.write(dead.filter(are_late))
    dead_letter_output = None
    if dead_writer.files:
        dead_letter_output = TaskOutput(
            tuple(exclude_committed_offsets(task.ranges, task.dead_letter_next_offsets)), dead_writer.files
        )
    output = TaskOutput(task.ranges, writer.files)
    return LandingTaskResult(output, dead_letter_output, late_writer.files, misfits=misfits)


def _decode_records(task: LandingTask, reader: _RecordReader, decoder: RowDecoder) -> Iterator[DecodedRows]:
    if task.source is not None:
        yield from _decode_rows_again(task.source, decoder, task.dead_letters_ahead)
        return
    for partition, records in reader:
        new_records = _exclude_records_at_offsets(records, task.dead_letters_ahead.get(partition))
        yield from decoder.decode_records(partition, new_records)


def _decode_rows_again(source: TableFiles, decoder: RowDecoder, excluded: OffsetSets) -> Iterator[DecodedRows]:
    """Decode the records again that are stored as rows of a table, as if they were read from the topic."""
    needed = {*list_source_columns(source.schema), *(each for each in source.schema.names if each in SYSTEM_NAMES)}
    columns = [name for name in source.schema.names if name in needed]
    for batch in scan(source, columns, batch_rows=DECODE_BATCH_ROWS):
        kept = batch.filter(pa.array(~compute_offsets_mask(batch, excluded)))
        if not kept.num_rows:
            continue
        rows = pa.Table.from_batches([kept])
        own = {name: rows[name].combine_chunks() for name in rows.column_names if name in SYSTEM_NAMES}
        own[VALUE] = encode_json_values(rows, source.value_schema)
        del own[RESCUED]
        yield from decoder.decode_restored_rows(own)


def _exclude_records_at_offsets(records: RecordColumns, offsets: npt.NDArray[np.int64] | None) -> RecordColumns:
    if offsets is None:
        return records
    kept = pa.array(~np.isin(records.offset.to_numpy(), offsets))
    return RecordColumns(*(None if each is None else each.filter(kept) for each in records))


def _compute_below_offsets_mask(dead_letter_table: pa.RecordBatch, next_offsets: Mapping[int, int]) -> pa.BooleanArray:
    """Return a mask that selects the dead-letter records whose offset is below their partition's next offset."""
    partitions, offsets = dead_letter_table.column(PARTITION), dead_letter_table.column(OFFSET)
    return pa.array(
        [
            offset < next_offsets.get(partition, 0)
            for partition, offset in zip(partitions.to_pylist(), offsets.to_pylist(), strict=True)
        ],
        pa.bool_(),
    )


@contextmanager
def _disable_garbage_collection() -> Iterator[None]:
    """Disable garbage collection, which takes a third of a task's time; decoded values have no reference cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _WarningCollector(logging.Handler):
    """A log handler that collects warning messages, so that a task can return them to the driver."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def _collect_warnings() -> Iterator[list[str]]:
    """Collect warnings logged in this process, such as deleted offsets, to return them to the driver."""
    collector = _WarningCollector()
    logger.addHandler(collector)
    try:
        yield collector.messages
    finally:
        logger.removeHandler(collector)
