"""Statistics of a Parquet file as Delta keeps them, so that readers skip files that cannot hold what they look for.

Only whole numbers, dates and times. A float's minimum says nothing of its NaNs, which Spark sorts above everything, so
a reader would skip rows that it should find; texts and bytes cost more than they save.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from chronik.pipeline.tables.layout import VALUE_CRC32C

STATS_COLUMNS_MAX = 32
"""Delta's own default (`delta.dataSkippingNumIndexedCols`)."""


def stats_columns(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if _is_counted(field)][:STATS_COLUMNS_MAX]


def _is_counted(field: pa.Field) -> bool:
    kind, is_a = field.type, pa.types
    return field.name != VALUE_CRC32C and bool(is_a.is_integer(kind) or is_a.is_date(kind) or is_a.is_timestamp(kind))


def stats_json(metadata: Any, columns: list[str]) -> str:
    """From what the Parquet writer knows of its row groups."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name, index in _indices(metadata, columns).items():
        groups = [metadata.row_group(number).column(index).statistics for number in range(metadata.num_row_groups)]
        if any(group is None or not group.has_null_count for group in groups):
            continue
        nulls[name] = sum(group.null_count for group in groups)
        with_values = [group for group in groups if group.num_values > 0]
        if with_values and all(group.has_min_max for group in with_values):
            lowest[name] = _text(min(group.min for group in with_values))
            highest[name] = _text(max(group.max for group in with_values))
    stats = {"numRecords": metadata.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return json.dumps(stats, separators=(",", ":"))


def _indices(metadata: Any, columns: list[str]) -> dict[str, int]:
    paths = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    return {name: paths[name] for name in columns if name in paths}


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, date) else value
