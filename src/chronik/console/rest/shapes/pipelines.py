"""Pipelines, as their drivers tell of them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec


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
    rows: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    topic: str | None = None
    """Whose table; it may be left out where the pipeline has one topic."""


class Sample(msgspec.Struct):
    columns: list[str]
    rows: list[list[Any]]
