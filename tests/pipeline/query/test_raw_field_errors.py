"""Error messages for statements that use a JSON field of a raw topic."""

from __future__ import annotations

import pytest

from chronik.pipeline.query.views import RawTopic, explain_raw_field

RAW = {"orders": RawTopic("orders", True)}
NO_COLUMN = "UNRESOLVED_COLUMN.WITH_SUGGESTION"


def test_unknown_column_of_raw_topic_is_explained_in_one_line() -> None:
    message = str(explain_raw_field(NO_COLUMN, ["customer"], RAW))
    assert message.startswith("there is no column customer: orders has landed in raw format, so its values are bytes")
    assert "get_json_object(CAST(_value AS STRING), '$.customer')" in message
    assert "chronik topics alter orders -c columnar.format=json" in message
    assert "\n" not in message


def test_message_for_unlanded_topic_suggests_landing_as_json() -> None:
    message = str(explain_raw_field(NO_COLUMN, ["customer"], {"orders": RawTopic("orders", False)}))
    assert "orders has not landed" in message
    assert "-c columnar.enabled=true -c columnar.format=json, and chronik pipeline run" in message


def test_qualifier_selects_the_raw_topic() -> None:
    raw = {"orders": RawTopic("orders", True), "eu_payments": RawTopic("eu.payments", True)}
    assert "eu.payments has landed in raw format" in str(explain_raw_field(NO_COLUMN, ["EU_payments", "n"], raw))
    assert "orders has landed in raw format" in str(explain_raw_field(NO_COLUMN, ["o", "n"], raw)), (
        "an alias may mean any"
    )


def test_field_access_on_value_column_is_explained() -> None:
    error = explain_raw_field("INVALID_EXTRACT_BASE_FIELD_TYPE", ["_value"], RAW)
    assert "orders has landed in raw format" in str(error)


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
def test_other_errors_are_not_explained(condition: str, name: list[str], raw: dict[str, RawTopic]) -> None:
    assert explain_raw_field(condition, name, raw) is None
