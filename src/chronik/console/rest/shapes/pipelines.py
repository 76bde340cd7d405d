"""Pipelines, as their drivers tell of them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec


class Pipeline(msgspec.Struct):
    name: str
    updated_ms: int
    """When its driver last told of it."""
    told: dict[str, Any]
    """What it told: progress, lag, last error, schema."""


class PipelineDetails(Pipeline):
    history: list[dict[str, Any]] = []
    """What it told before, newest first."""


class SampleRows(msgspec.Struct):
    rows: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20


class Sample(msgspec.Struct):
    columns: list[str]
    rows: list[list[Any]]
