"""The lag of a stream, computed from its progress, to which Python data sources cannot add metrics themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from statistics import mean
from typing import Any

from chronik.pipeline.source.micro_batch_planner import parse_end_offsets
from chronik.pipeline.source.offset_ranges import Offsets


def compute_offsets_behind_latest(source: Mapping[str, Any]) -> dict[str, str]:
    """Return the lag of a `chronik` source under the metric names of Spark's Kafka source.

        compute_offsets_behind_latest(query.lastProgress.sources[0])
        {"minOffsetsBehindLatest": "0", "maxOffsetsBehindLatest": "40", "avgOffsetsBehindLatest": "12.5"}

    The result is empty if the progress has no offsets, or offsets of another source.
    """
    ends, latest = _parse_offsets(source["endOffset"]), _parse_offsets(source["latestOffset"])
    if not ends or not latest:
        return {}
    lags = [offset - ends.get(partition, 0) for partition, offset in latest.items()]
    return {
        "minOffsetsBehindLatest": str(min(lags)),
        "maxOffsetsBehindLatest": str(max(lags)),
        "avgOffsetsBehindLatest": str(mean(map(float, lags))),
    }


def _parse_offsets(offset: Any) -> Offsets:
    """Return the end offsets of a stream offset, which PySpark gives as text and JSON files have as an object."""
    try:
        parsed: Any = json.loads(offset) if isinstance(offset, str) else offset
        return parse_end_offsets(parsed) if isinstance(parsed, dict) else {}
    except ValueError:
        return {}
