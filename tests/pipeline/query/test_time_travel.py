"""`AS OF` clauses: parsing and values, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from chronik.pipeline.query.time_travel import (
    AsOfClause,
    AsOfClauseError,
    AsOfKind,
    AsOfOffsets,
    evaluate_clause,
    parse_as_of_clauses,
)
from chronik.pipeline.tables.as_of import AsOfTime, AsOfVersion

TOPICS = ("orders", "orders_cold", "orders_hot", "eu.orders")


def rewrite(statement: str) -> str:
    text = parse_as_of_clauses(statement, lambda name: name in TOPICS).text
    return " ".join(text.split()).replace(" )", ")")


def clauses(statement: str) -> list[tuple[str, str, str]]:
    found = parse_as_of_clauses(statement, lambda name: name in TOPICS).clauses
    return [(each.name, each.kind.value, each.value) for each in found]


@pytest.mark.parametrize(
    ("statement", "rewritten"),
    [
        ("SELECT * FROM orders VERSION AS OF 3", "SELECT * FROM `orders@1` `orders`"),
        ("SELECT * FROM orders FOR VERSION AS OF '3' WHERE n > 1", "SELECT * FROM `orders@1` `orders` WHERE n > 1"),
        ("FROM orders for system_version as of 3 SELECT n", "FROM `orders@1` `orders` SELECT n"),
        ("SELECT o.n FROM orders VERSION AS OF 3 o", "SELECT o.n FROM `orders@1` o"),
        ("SELECT o.n FROM orders VERSION AS OF 3 AS `o`", "SELECT o.n FROM `orders@1` AS `o`"),
        (
            "SELECT * FROM (SELECT * FROM orders VERSION AS OF 3) UNION SELECT * FROM `eu.orders` VERSION AS OF 4",
            "SELECT * FROM (SELECT * FROM `orders@1` `orders`) UNION SELECT * FROM `eu.orders@2` `eu.orders`",
        ),
        (
            "SELECT * FROM orders VERSION AS OF 3 a JOIN orders VERSION AS OF 3 b JOIN orders c",
            "SELECT * FROM `orders@1` a JOIN `orders@1` b JOIN orders c",
        ),
        (
            "SELECT * FROM orders VERSION AS OF 3 TABLESAMPLE (10 ROWS) REPEATABLE (4) LIMIT 3",
            "SELECT * FROM `orders@1` TABLESAMPLE (10 ROWS) REPEATABLE (4) `orders` LIMIT 3",
        ),
        ("FROM orders VERSION AS OF 3 TABLESAMPLE (5 PERCENT) o", "FROM `orders@1` TABLESAMPLE (5 PERCENT) o"),
        ("SELECT * FROM lake.orders VERSION AS OF 3", "SELECT * FROM lake.orders VERSION AS OF 3"),
        ("SELECT * FROM others VERSION AS OF 3", "SELECT * FROM others VERSION AS OF 3"),
        ("SELECT 'orders VERSION AS OF 3'", "SELECT 'orders VERSION AS OF 3'"),
    ],
)  # fmt: skip
def test_clause_is_replaced_by_a_view_with_the_alias_of_the_topic(statement: str, rewritten: str) -> None:
    assert rewrite(statement) == rewritten


@pytest.mark.parametrize(
    "value",
    [
        "'2026-11-19'",
        "TIMESTAMP '2026-11-19 08:30:00'",
        "current_timestamp() - INTERVAL 1 HOUR",
        "current_date",
        "now() - INTERVAL '1 2' DAY TO HOUR + INTERVAL 2 DAYS 3 MINUTES",
        "date_sub(current_date(), (1 + 2))",
        "('2026-11-19')",
        "1763539200",
    ],
)
def test_time_is_any_expression_of_literals_and_functions(value: str) -> None:
    for after in ("", " o", " WHERE n = 1", " AS o JOIN orders ON true", ")"):
        assert clauses(f"SELECT * FROM orders TIMESTAMP AS OF {value}{after}") == [("orders", "TIMESTAMP", value)]


def test_positions_after_a_short_clause_are_kept() -> None:
    """Spark's error messages name positions in the statement."""
    statement = "SELECT * FROM orders VERSION AS OF 3 WHERE"
    assert parse_as_of_clauses(statement, lambda _: True).text.index("WHERE") == statement.index("WHERE")


def test_topics_with_a_clause_are_not_read_in_their_current_state() -> None:
    found = parse_as_of_clauses("SELECT * FROM orders VERSION AS OF 3, `eu.orders`", lambda _: True)
    assert found.text_without_clauses == "SELECT * FROM  , `eu.orders`"


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("VERSION AS OF", "orders VERSION AS OF: no value that can be read; write VERSION AS OF 3"),
        ("VERSION AS OF -1", "orders VERSION AS OF: no value that can be read; write VERSION AS OF 3"),
        ("TIMESTAMP AS OF", "orders TIMESTAMP AS OF: no value that can be read; write TIMESTAMP AS OF '2026-"),
        ("OFFSETS AS OF 3", "orders OFFSETS AS OF: no value that can be read; write OFFSETS AS OF '{"),
        (
            "VERSION AS OF 3 TIMESTAMP AS OF now()",
            "orders has several AS OF clauses: use one of VERSION, TIMESTAMP and",
        ),
        ("OFFSETS AS OF '{}' FOR VERSION AS OF 3", "orders has several AS OF clauses"),
    ],
)
def test_incomplete_or_mixed_clauses_are_rejected(clause: str, message: str) -> None:
    with pytest.raises(AsOfClauseError) as raised:
        parse_as_of_clauses(f"SELECT * FROM orders {clause}", lambda name: name == "orders")
    assert str(raised.value).startswith(message)


def evaluate(kind: AsOfKind, value: str, time: datetime | None = None) -> object:
    return evaluate_clause(AsOfClause("orders", "orders@1", kind, value), lambda _: time)


def test_values_of_clauses_are_evaluated() -> None:
    noon = datetime(2026, 11, 19, 12, tzinfo=UTC)
    assert evaluate(AsOfKind.VERSION, "'12'") == evaluate(AsOfKind.VERSION, "12") == AsOfVersion(12)
    assert evaluate(AsOfKind.TIMESTAMP, "noon()", noon) == AsOfTime(noon)
    assert evaluate(AsOfKind.OFFSETS, """'{"1": 57, "0": -1}'""") == AsOfOffsets(((0, -1), (1, 57)))


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (AsOfKind.VERSION, "'abc'", "orders VERSION AS OF 'abc': not the number of a version; write VERSION AS OF 3"),
        (AsOfKind.VERSION, str(2**63), "not the number of a version"),
        (AsOfKind.TIMESTAMP, "'today?'", "orders TIMESTAMP AS OF 'today?': not a time; write TIMESTAMP AS OF '2026-"),
        (AsOfKind.OFFSETS, "'0: 1'", "orders OFFSETS AS OF '0: 1': not a JSON object of partitions and offsets; write"),
        (AsOfKind.OFFSETS, "'{}'", "not a JSON object"),
        (AsOfKind.OFFSETS, """'{"0": "1"}'""", "not a JSON object"),
        (AsOfKind.OFFSETS, """'{"0": true}'""", "not a JSON object"),
        (AsOfKind.OFFSETS, """'{"a": 1}'""", "not a JSON object"),
        (AsOfKind.OFFSETS, """'{"0": -2}'""", "not a JSON object"),
        (AsOfKind.OFFSETS, "'[1]'", "not a JSON object"),
    ],
)
def test_invalid_values_are_rejected(kind: AsOfKind, value: str, message: str) -> None:
    with pytest.raises(AsOfClauseError) as raised:
        evaluate(kind, value)
    assert message in str(raised.value)
