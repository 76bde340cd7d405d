"""Tests of the lag of a stream, computed from its progress with the names of Spark's Kafka source."""

from __future__ import annotations

import json
from typing import Any

from chronik.pipeline.source.lag import compute_offsets_behind_latest
from chronik.pipeline.source.micro_batch_planner import START_OFFSETS_KEY


def progress(end: Any, latest: Any) -> dict[str, Any]:
    return {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}


def test_lag_has_names_and_values_of_spark_kafka_source() -> None:
    end = {"t": {"0": 5, "1": 9}, START_OFFSETS_KEY: {"t": {"0": 0, "1": 0}}}
    latest = {"t": {"0": 8, "1": 9, "2": 4}}
    assert compute_offsets_behind_latest(progress(end, latest)) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "4",
        "avgOffsetsBehindLatest": "2.3333333333333335",
    }


def test_lag_is_computed_from_parsed_json() -> None:
    parsed = {"endOffset": {"t": {"0": 5}}, "latestOffset": {"t": {"0": 7}}}
    assert compute_offsets_behind_latest(parsed)["maxOffsetsBehindLatest"] == "2"


def test_lag_is_empty_without_offsets() -> None:
    assert compute_offsets_behind_latest(progress(None, {"t": {"0": 1}})) == {}
    assert compute_offsets_behind_latest(progress({"t": {"0": 1}}, None)) == {}
    assert compute_offsets_behind_latest({"endOffset": "None", "latestOffset": None}) == {}


def test_lag_is_empty_for_offsets_of_other_sources() -> None:
    assert compute_offsets_behind_latest(progress({"logOffset": 3}, {"logOffset": 4})) == {}
    assert compute_offsets_behind_latest(progress(17, 18)) == {}
