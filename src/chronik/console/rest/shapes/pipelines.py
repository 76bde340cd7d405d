"""Pipelines, as their drivers tell of them."""

from __future__ import annotations

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
