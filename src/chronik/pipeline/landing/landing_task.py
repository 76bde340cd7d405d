"""One landing task, on an executor: write ranges of a topic as Parquet files, and return the files to the driver.

Rows never leave the executor. A task writes all of its ranges or nothing: the files of a failed attempt are deleted,
and vacuum removes those of a killed one.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chronik.errors import ChronikError
from chronik.pipeline.landing import failpoints
from chronik.pipeline.landing.round_plan import RangeBundle
from chronik.pipeline.records.columns import ColumnSelection, RecordColumns
from chronik.pipeline.source.offset_ranges import OffsetRange
from chronik.pipeline.source.options import ReadSettings
from chronik.pipeline.source.range_reader import read_columns, read_skipping_deleted
from chronik.pipeline.tables.commit_plan import TaskOutput, WrittenFile, remaining_ranges
from chronik.pipeline.tables.layout import OFFSET, PARTITION, build_table_batch, system_columns
from chronik.pipeline.tables.offset_sets import OffsetSets
from chronik.pipeline.tables.parquet import CODEC
from chronik.pipeline.tables.table_files import TableDescriptor
from chronik.pipeline.tables.values.column_conversion import DecodedRows, decode_records
from chronik.pipeline.tables.values.schema_evolution import SchemaEvolution

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
    """Next offset of the dead-letter table by partition. It is ahead of the table's after an interrupted commit."""
    dead_letters_ahead: OffsetSets = field(default_factory=dict)
    """Offsets of dead-letter records that were committed ahead of the table and must not be written again."""
    allow_data_loss: bool = False
    """Whether to skip records that retention has deleted, instead of failing."""
    may_request_columns: bool = True
    """Whether to request columns for new fields, instead of storing them in `_rescued`."""
    codec: str = CODEC
    """Compression codec of the Parquet files."""


@dataclass(frozen=True, slots=True)
class LandingTaskResult:
    """The result of a landing task: the files it wrote, or the reason why it wrote none."""

    output: TaskOutput | None = None
    dead_letter_output: TaskOutput | None = None
    """Files of dead-letter records, or None if there are none."""
    late_dead_letters: tuple[WrittenFile, ...] = ()
    """Files of dead-letter records below `dead_letter_next_offsets` that earlier rounds did not detect."""
    requested_columns: tuple[pa.Field, ...] = ()
    """Columns to add to the table. If not empty, the task wrote nothing."""
    error: str | None = None
    """The error of a failed task, which wrote nothing; None if it succeeded."""
    warnings: tuple[str, ...] = ()


def run_landing_task(task: LandingTask) -> LandingTaskResult:
    """Write the records of a landing task to files, and return the files or the error.

    Errors are returned, not raised: a topic that cannot be read must not fail the Spark job that lands others too.
    """
    with _collect_warnings() as warnings:
        try:
            with _without_garbage_collection():
                outcome = _land_raw(task) if task.dead_letters is None else _land_decoded(task, task.dead_letters)
        except ChronikError as error:
            outcome = LandingTaskResult(error=str(error))
        except Exception as error:
            logger.exception("topic %s: landing task failed unexpectedly", task.topic)
            outcome = LandingTaskResult(error=f"{type(error).__name__}: {error}")
    return replace(outcome, warnings=tuple(warnings[:WARNINGS_MAX]))


def _read_records(task: LandingTask) -> Iterator[tuple[int, RecordColumns]]:
    for offsets_range in task.ranges:
        target = OffsetRange(task.topic, offsets_range.partition, offsets_range.start, offsets_range.end)
        read = read_skipping_deleted if task.allow_data_loss else read_columns
        for records in read(target, task.read, ColumnSelection()):
            yield offsets_range.partition, records


def _land_raw(task: LandingTask) -> LandingTaskResult:
    failpoints.hit_failpoint(failpoints.BEFORE_FILES)
    schema = task.table.schema
    with task.table.writer(codec=task.codec) as writer:
        for partition, records in _read_records(task):
            writer.write(build_table_batch(system_columns(partition, records, schema.names), schema))
    failpoints.hit_failpoint(failpoints.AFTER_FILES)
    return LandingTaskResult(TaskOutput(task.ranges, writer.files))


class _FieldsFound(Exception):
    """New fields need columns, so the files written by the task must be discarded."""


def _land_decoded(task: LandingTask, dead_letter_table: TableDescriptor) -> LandingTaskResult:
    failpoints.hit_failpoint(failpoints.BEFORE_FILES)
    evolution = SchemaEvolution(task.table.schema)
    chunks = _decode_records(task, evolution)
    try:
        outcome = _write_decoded(task, dead_letter_table, chunks, evolution)
    except _FieldsFound:
        # Read the remaining records too, so that the second attempt has every column that it needs.
        for chunk in chunks:
            evolution.add_rescued(chunk.rescued)
        return LandingTaskResult(requested_columns=evolution.requested_fields)
    failpoints.hit_failpoint(failpoints.AFTER_FILES)
    return outcome


def _write_decoded(
    task: LandingTask, dead_letter_table: TableDescriptor, chunks: Iterator[DecodedRows], evolution: SchemaEvolution
) -> LandingTaskResult:
    schema, codec = task.table.schema, task.codec
    with (
        task.table.writer(codec=codec) as writer,
        dead_letter_table.writer(codec=codec) as dead_writer,
        dead_letter_table.writer(codec=codec) as late_writer,
    ):
        for chunk in chunks:
            if task.may_request_columns:
                evolution.add_rescued(chunk.rescued)
                if evolution.requested_fields:
                    raise _FieldsFound
            writer.write(build_table_batch(chunk.rows, schema))
            if chunk.dead_letters is not None:
                dead = build_table_batch(chunk.dead_letters, dead_letter_table.schema)
                are_late = _below_offsets_mask(dead, task.dead_letter_next_offsets)
                dead_writer.write(dead.filter(pc.invert(are_late)))
                late_writer.write(dead.filter(are_late))
    dead_letter_output = None
    if dead_writer.files:
        dead_letter_output = TaskOutput(
            tuple(remaining_ranges(task.ranges, task.dead_letter_next_offsets)), dead_writer.files
        )
    return LandingTaskResult(TaskOutput(task.ranges, writer.files), dead_letter_output, late_writer.files)


def _decode_records(task: LandingTask, evolution: SchemaEvolution) -> Iterator[DecodedRows]:
    for partition, records in _read_records(task):
        new_records = _without_offsets(records, task.dead_letters_ahead.get(partition))
        yield from decode_records(partition, new_records, evolution.schema)


def _without_offsets(records: RecordColumns, offsets: npt.NDArray[np.int64] | None) -> RecordColumns:
    if offsets is None:
        return records
    kept = pa.array(~np.isin(records.offset.to_numpy(), offsets))
    return RecordColumns(*(None if each is None else each.filter(kept) for each in records))


def _below_offsets_mask(dead_letter_table: pa.RecordBatch, next_offsets: Mapping[int, int]) -> pa.BooleanArray:
    """Return a mask of the dead-letter records, all of one partition, that are below the next offset."""
    partition = dead_letter_table.column(PARTITION)[0].as_py()
    return pc.less(dead_letter_table.column(OFFSET), next_offsets.get(partition, 0))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection, which takes a third of a task's time; decoded values have no reference cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _WarningCollector(logging.Handler):
    """A log handler that collects warnings."""

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
