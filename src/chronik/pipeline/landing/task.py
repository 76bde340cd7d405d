"""One task of a landing, on an executor: ranges of a topic become Parquet files, and the driver is told which.

Rows never leave this process. A task either wrote all of its ranges, or nothing that counts: files of an attempt that
failed are taken back, and those of one that was killed are orphans for vacuum.
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
    topic: str
    spans: Bundle
    read: ReadSettings
    table: FrozenTable
    dead_letters: FrozenTable | None = None
    """None for a table that takes any bytes."""
    dead_next_offsets: Mapping[int, int] = field(default_factory=dict)
    """Letters below these are committed already, by a round that did not come to its end."""
    letters_ahead: OffsetSets = field(default_factory=dict)
    """Those letters: their records must not become rows, nor letters again."""
    allow_data_loss: bool = False
    """Otherwise records that retention has taken fail the task."""
    may_ask_for_columns: bool = True
    """Otherwise fields without a column are rescued."""
    codec: str = CODEC
    """The codec of the files."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the driver is told."""

    landed: Landed | None = None
    dead: Landed | None = None
    """None when there are no dead letters."""
    late: tuple[WrittenFile, ...] = ()
    """Dead letters below `dead_next_offsets`, where none were found before."""
    wanted: tuple[pa.Field, ...] = ()
    """Columns that the table should have: then nothing was written."""
    error: str | None = None
    """What went wrong: then nothing was written either."""
    warnings: tuple[str, ...] = ()


def run_task(task: Task) -> Outcome:
    """Never raises: a topic that cannot be read must not fail the job that lands others too."""
    with _warnings_heard() as warnings:
        try:
            with _without_garbage_collection():
                outcome = _land_raw(task) if task.dead_letters is None else _land_decoded(task, task.dead_letters)
        except ChronikError as error:
            outcome = Outcome(error=str(error))
        except Exception as error:
            logger.exception("a task of topic %s", task.topic)
            outcome = Outcome(error=f"{type(error).__name__}: {error}")
    return replace(outcome, warnings=tuple(warnings[:WARNINGS_MAX]))


def _records(task: Task) -> Iterator[tuple[int, Columns]]:
    for span in task.spans:
        target = OffsetRange(task.topic, span.partition, span.start, span.end)
        read = read_past_gaps if task.allow_data_loss else read_columns
        for records in read(target, task.read, Wanted()):
            yield span.partition, records


def _land_raw(task: Task) -> Outcome:
    failpoints.reached(failpoints.BEFORE_FILES)
    schema = task.table.schema
    with task.table.writer(codec=task.codec) as writer:
        for partition, records in _records(task):
            writer.write(batch_of(own_columns(partition, records, schema.names), schema))
    failpoints.reached(failpoints.AFTER_FILES)
    return Outcome(Landed(task.spans, writer.files))


class _FieldsFound(Exception):
    """There are fields without a column: what is written so far is not to be kept."""


def _land_decoded(task: Task, letters: FrozenTable) -> Outcome:
    failpoints.reached(failpoints.BEFORE_FILES)
    growth = Growth(task.table.schema)
    portions = _decoded(task, growth)
    try:
        outcome = _write_decoded(task, letters, portions, growth)
    except _FieldsFound:
        # The rest is only looked through, to the end: so a second attempt finds every column that it needs.
        for portion in portions:
            growth.learn(portion.rescued)
        return Outcome(wanted=growth.wanted)
    failpoints.reached(failpoints.AFTER_FILES)
    return outcome


def _write_decoded(task: Task, letters: FrozenTable, portions: Iterator[DecodedRows], growth: Growth) -> Outcome:
    schema, codec = task.table.schema, task.codec
    with (
        task.table.writer(codec=codec) as writer,
        letters.writer(codec=codec) as dead_writer,
        letters.writer(codec=codec) as late_writer,
    ):
        for portion in portions:
            if task.may_ask_for_columns:
                growth.learn(portion.rescued)
                if growth.wanted:
                    raise _FieldsFound
            writer.write(batch_of(portion.rows, schema))
            if portion.dead is not None:
                dead = batch_of(portion.dead, letters.schema)
                are_late = _are_below(dead, task.dead_next_offsets)
                dead_writer.write(dead.filter(pc.invert(are_late)))
                late_writer.write(dead.filter(are_late))
    landed_letters = None
    if dead_writer.files:
        landed_letters = Landed(tuple(still_to_land(task.spans, task.dead_next_offsets)), dead_writer.files)
    return Outcome(Landed(task.spans, writer.files), landed_letters, late_writer.files)


def _decoded(task: Task, growth: Growth) -> Iterator[DecodedRows]:
    for partition, records in _records(task):
        fresh = _without(records, task.letters_ahead.get(partition))
        yield from decode_records(partition, fresh, growth.schema)


def _without(records: Columns, offsets: npt.NDArray[np.int64] | None) -> Columns:
    if offsets is None:
        return records
    kept = pa.array(~np.isin(records.offset.to_numpy(), offsets))
    return Columns(*(None if each is None else each.filter(kept) for each in records))


def _are_below(letters: pa.RecordBatch, next_offsets: Mapping[int, int]) -> pa.BooleanArray:
    """Marks those that are below. All letters are of one partition."""
    partition = letters.column(PARTITION)[0].as_py()
    return pc.less(letters.column(OFFSET), next_offsets.get(partition, 0))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Decoded values are trees, thousands at a time: looking for cycles among them takes a third of a task's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())


@contextmanager
def _warnings_heard() -> Iterator[list[str]]:
    """Collects what reading has to say of offsets that are gone, which only this process hears."""
    listener = _Listener()
    logger.addHandler(listener)
    try:
        yield listener.heard
    finally:
        logger.removeHandler(listener)
