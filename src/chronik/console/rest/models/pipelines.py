"""Models of pipelines, as reported by their drivers."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from chronik.console.rest.models.common import Name

SAMPLE_ROWS_MAX: Final = 20


class TableColumn(msgspec.Struct):
    """A column of a pipeline's table."""

    name: str
    type: str
    """The Spark SQL type."""


class PipelineTopic(msgspec.Struct):
    """The state of one topic of a pipeline."""

    topic: str
    state: str
    table: str
    paused: bool
    lag: int | None
    """Number of records of the topic that are not yet in the table; null if an end offset is unknown."""
    next_offsets: dict[int, int]
    high_watermarks: dict[int, int]
    """The partitions' high watermarks when the driver, the process that runs the pipeline, planned its last round."""
    rows_per_second: float
    """Throughput of the last round that wrote records to the table, in rows per second."""
    total_rows: int
    total_dead_letters: int
    """Number of dead-letter records since the driver started."""
    last_error: str | None
    last_error_ms: int | None
    host: str
    pid: int
    started_ms: int
    updated_ms: int
    """Time of the last status report of the pipeline's driver, in milliseconds since 1970."""
    columns: list[TableColumn] | None
    """The columns of the table; null if no driver has reported them yet."""
    columns_left_out: int
    """Number of columns omitted because of the size limit of the driver's report."""
    end_offsets: dict[int, int] = {}
    """The current end offsets of the partitions, from which the lag is computed; the high watermarks of the driver's
    last round for a principal that may not describe the topic."""
    round_rows: int = 0
    """Number of rows of the last round that wrote records to the table."""
    misfits: dict[str, int] = {}
    """Number of values in that round that did not fit their column and are in `_rescued`, for columns with many."""


class Pipeline(msgspec.Struct):
    """A pipeline, which continuously writes topics to tables."""

    name: str
    topics: int
    states: list[str]
    """The distinct states of the pipeline's topics."""
    lag: int | None
    last_error: str | None
    updated_ms: int
    first_topics: list[str]
    """The names of up to ten topics, in alphabetical order."""


class PipelineDetails(msgspec.Struct):
    """A pipeline and its topics."""

    name: str
    topics: list[PipelineTopic]


class SampleRows(msgspec.Struct):
    """The query parameters for sampling a table."""

    topic: Name
    rows: Annotated[int, msgspec.Meta(ge=1, le=SAMPLE_ROWS_MAX)] = SAMPLE_ROWS_MAX


class Sample(msgspec.Struct):
    """Sample rows from the newest files of a table.

    Long values are truncated and end in …
    """

    columns: list[str]
    columns_left_out: int
    """Number of columns omitted because of the size limit of a response."""
    rows: list[list[str | None]]
