"""Pipelines, as their drivers tell of them."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from chronik.console.rest.shapes.common import Name

SAMPLE_ROWS_MAX: Final = 20


class TableColumn(msgspec.Struct):
    name: str
    type: str
    """As Spark's SQL writes it."""


class PipelineTopic(msgspec.Struct):
    topic: str
    state: str
    table: str
    paused: bool
    lag: int | None
    """Messages that have not landed yet; null when an end is not known."""
    next_offsets: dict[int, int]
    high_watermarks: dict[int, int]
    """As of the round that the driver planned last."""
    rows_per_second: float
    """Of the last round that landed something."""
    total_rows: int
    total_dead_letters: int
    """Since the driver started."""
    last_error: str | None
    last_error_ms: int | None
    host: str
    pid: int
    started_ms: int
    updated_ms: int
    """When its driver last told of it."""
    columns: list[TableColumn] | None
    """Those of the table; null when no driver has told them yet."""
    columns_left_out: int
    """Further ones, for which drivers had no room."""


class Pipeline(msgspec.Struct):
    name: str
    topics: int
    states: list[str]
    """Those that its topics are in, each once."""
    lag: int | None
    last_error: str | None
    updated_ms: int


class PipelineDetails(msgspec.Struct):
    name: str
    topics: list[PipelineTopic]


class SampleRows(msgspec.Struct):
    topic: Name
    rows: Annotated[int, msgspec.Meta(ge=1, le=SAMPLE_ROWS_MAX)] = SAMPLE_ROWS_MAX


class Sample(msgspec.Struct):
    """Some rows of a table, of its newest files. What is too long is cut, and ends in …"""

    columns: list[str]
    columns_left_out: int
    """Further ones, for which an answer has no room."""
    rows: list[list[str | None]]
