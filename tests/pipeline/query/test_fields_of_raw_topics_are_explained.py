"""Whoever asks a raw topic for a field of its JSON is told that its values are bytes, and what to do."""

from __future__ import annotations

import pytest

from chronik.pipeline.query.raw_fields import RawTopic, field_of_raw

RAW = {"orders": RawTopic("orders", True)}
NO_COLUMN = "UNRESOLVED_COLUMN.WITH_SUGGESTION"


def test_a_field_that_is_no_column_is_explained_in_one_line() -> None:
    told = str(field_of_raw(NO_COLUMN, ["customer"], RAW))
    assert told.startswith("there is no column customer: orders landed raw, so its values are bytes, in _value.")
    assert "get_json_object(CAST(_value AS STRING), '$.customer')" in told
    assert "chronik topics alter orders -c columnar.format=json" in told
    assert "\n" not in told


def test_a_topic_that_has_not_landed_is_to_be_landed() -> None:
    told = str(field_of_raw(NO_COLUMN, ["customer"], {"orders": RawTopic("orders", False)}))
    assert "orders has not landed" in told
    assert "-c columnar.enabled=true -c columnar.format=json, and chronik pipeline run" in told


def test_the_topic_before_the_column_is_the_one_that_is_meant() -> None:
    raw = {"orders": RawTopic("orders", True), "eu_payments": RawTopic("eu.payments", True)}
    assert "eu.payments landed raw" in str(field_of_raw(NO_COLUMN, ["EU_payments", "n"], raw))
    assert "orders landed raw" in str(field_of_raw(NO_COLUMN, ["o", "n"], raw)), "an alias may be any of them"


def test_a_field_of_the_bytes_themselves_is_explained() -> None:
    assert "orders landed raw" in str(field_of_raw("INVALID_EXTRACT_BASE_FIELD_TYPE", ["_value"], RAW))


@pytest.mark.parametrize(
    ("condition", "name", "raw"),
    [
        (NO_COLUMN, ["customer"], {}),
        (NO_COLUMN, ["_rescued"], RAW),
        (NO_COLUMN, [], RAW),
        ("DIVIDE_BY_ZERO", ["customer"], RAW),
        ("INVALID_EXTRACT_BASE_FIELD_TYPE", ["_offset"], RAW),
    ],
)
def test_other_errors_stay_as_they_are(condition: str, name: list[str], raw: dict[str, RawTopic]) -> None:
    assert field_of_raw(condition, name, raw) is None
