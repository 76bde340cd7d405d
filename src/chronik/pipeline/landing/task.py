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
from chronik.pipeline.landing.plan import Bundle
from chronik.pipeline.reading.options import ReadSettings
from chronik.pipeline.reading.ranges import OffsetRange
from chronik.pipeline.reading.reader import read_columns, read_past_gaps
from chronik.pipeline.records.columns import Columns, Wanted
from chronik.pipeline.tables.files import FrozenTable
from chronik.pipeline.tables.layout import OFFSET, PARTITION, batch_of, own_columns
from chronik.pipeline.tables.offset_sets import OffsetSets
from chronik.pipeline.tables.parquet import CODEC
from chronik.pipeline.tables.spans import Landed, WrittenFile, still_to_land
from chronik.pipeline.tables.values.growth import Growth
from chronik.pipeline.tables.values.json_rows import DecodedRows, decode_records

logger = logging.getLogger("chronik.pipeline")

WARNINGS_MAX = 20


@dataclass(frozen=True, slots=True)
class Task:
    """Ranges of a topic to land in one Spark task, and the tables to write to."""

    topic: str
    spans: Bundle
    read: ReadSettings
    table: FrozenTable
    dead_letters: FrozenTable | None = None
    """The dead-letter table, or None if the table stores values undecoded."""
    dead_next_offsets: Mapping[int, int] = field(default_factory=dict)
    """Offsets below which dead-letter records are already committed, by a round whose rows were not."""
    letters_ahead: OffsetSets = field(default_factory=dict)
    """Offsets of those dead-letter records, which must become neither rows nor dead-letter records again."""
    allow_data_loss: bool = False
    """Whether to skip records that retention has deleted, instead of failing."""
    may_ask_for_columns: bool = True
    """Whether to request columns for new fields, instead of storing them in `_rescued`."""
    codec: str = CODEC
    """Compression codec of the Parquet files."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a landing task: the files it has written, or why it wrote none."""

    landed: Landed | None = None
    dead: Landed | None = None
    """Files of dead-letter records, or None if there are none."""
    late: tuple[WrittenFile, ...] = ()
    """Files of dead-letter records below `dead_letter_next_offsets`, which earlier rounds did not find."""
    wanted: tuple[pa.Field, ...] = ()
    """Columns that the table should get. If there are any, nothing was written."""
    error: str | None = None
    """The error of the task. If there is one, nothing was written."""
    warnings: tuple[str, ...] = ()


def run_task(task: Task) -> Outcome:
    """Run a landing task and return its result.

    Errors are returned, not raised: a topic that cannot be read must not fail the Spark job that lands others too.
    """
    with _collect_warnings() as warnings:
        try:
            with _without_garbage_collection():
                outcome = _land_raw(task) if task.dead_letters is None else _land_decoded(task, task.dead_letters)
        except ChronikError as error:
            outcome = Outcome(error=str(error))
        except Exception as error:
            logger.exception("topic %s: landing task failed unexpectedly", task.topic)
            outcome = Outcome(error=f"{type(error).__name__}: {error}")
    return replace(outcome, warnings=tuple(warnings[:WARNINGS_MAX]))


def _read_records(task: Task) -> Iterator[tuple[int, Columns]]:
    for offsets_range in task.spans:
        target = OffsetRange(task.topic, offsets_range.partition, offsets_range.start, offsets_range.end)
        read = read_past_gaps if task.allow_data_loss else read_columns
        for records in read(target, task.read, Wanted()):
            yield offsets_range.partition, records


def _land_raw(task: Task) -> Outcome:
    failpoints.reached(failpoints.BEFORE_FILES)
    schema = task.table.schema
    with task.table.writer(codec=task.codec) as writer:
        for partition, records in _read_records(task):
            writer.write(batch_of(own_columns(partition, records, schema.names), schema))
    failpoints.reached(failpoints.AFTER_FILES)
    return Outcome(Landed(task.spans, writer.files))


class _FieldsFound(Exception):
    """New fields without a column were found; the files written so far must be discarded."""


def _land_decoded(task: Task, dead_letter_table: FrozenTable) -> Outcome:
    failpoints.reached(failpoints.BEFORE_FILES)
    evolution = Growth(task.table.schema)
    chunks = _decode_records(task, evolution)
    try:
        outcome = _write_decoded(task, dead_letter_table, chunks, evolution)
    except _FieldsFound:
        # Read the remaining records too, so that the second attempt has every column that it needs.
        for chunk in chunks:
            evolution.learn(chunk.rescued)
        return Outcome(wanted=evolution.wanted)
    failpoints.reached(failpoints.AFTER_FILES)
    return outcome


def _write_decoded(
    task: Task, dead_letter_table: FrozenTable, chunks: Iterator[DecodedRows], evolution: Growth
) -> Outcome:
    schema, codec = task.table.schema, task.codec
    with (
        task.table.writer(codec=codec) as writer,
        dead_letter_table.writer(codec=codec) as dead_writer,
        dead_letter_table.writer(codec=codec) as late_writer,
    ):
        for chunk in chunks:
            if task.may_ask_for_columns:
                evolution.learn(chunk.rescued)
                if evolution.wanted:
                    raise _FieldsFound
            writer.write(batch_of(chunk.rows, schema))
            if chunk.dead is not None:
                dead = batch_of(chunk.dead, dead_letter_table.schema)
                are_late = _below_offsets_mask(dead, task.dead_next_offsets)
                dead_writer.write(dead.filter(pc.invert(are_late)))
                late_writer.write(dead.filter(are_late))
    dead_letter_output = None
    if dead_writer.files:
        dead_letter_output = Landed(tuple(still_to_land(task.spans, task.dead_next_offsets)), dead_writer.files)
    return Outcome(Landed(task.spans, writer.files), dead_letter_output, late_writer.files)


def _decode_records(task: Task, evolution: Growth) -> Iterator[DecodedRows]:
    for partition, records in _read_records(task):
        new_records = _without_offsets(records, task.letters_ahead.get(partition))
        yield from decode_records(partition, new_records, evolution.schema)


def _without_offsets(records: Columns, offsets: npt.NDArray[np.int64] | None) -> Columns:
    if offsets is None:
        return records
    kept = pa.array(~np.isin(records.offset.to_numpy(), offsets))
    return Columns(*(None if each is None else each.filter(kept) for each in records))


def _below_offsets_mask(dead_letter_table: pa.RecordBatch, next_offsets: Mapping[int, int]) -> pa.BooleanArray:
    """Return a mask of the dead-letter records, all of one partition, that are below the next offset."""
    partition = dead_letter_table.column(PARTITION)[0].as_py()
    return pc.less(dead_letter_table.column(OFFSET), next_offsets.get(partition, 0))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection, which takes a third of a task's time: decoded values are trees without cycles."""
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
