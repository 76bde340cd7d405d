"""Resolution of names in SQL statements to topics, halves and columns; also the lexer."""

from __future__ import annotations

import pytest

from chronik.pipeline.query.lexer import SqlToken, TokenKind, split_statements, tokenize_sql
from chronik.pipeline.query.name_resolution import (
    AmbiguousNameError,
    TopicNames,
    TopicView,
    TopicViewScope,
    find_referenced_columns,
    has_single_scan,
)

COLUMNS = ["_partition", "_offset", "_key", "Amount", "user"]


def words(statement: str) -> list[str]:
    return [each.text for each in tokenize_sql(statement) if each.kind in (TokenKind.WORD, TokenKind.QUOTED)]


def views(statement: str, *topics: str) -> list[tuple[str, str, str]]:
    return [(view.name, view.topic, view.half) for view in TopicNames(topics).resolve_statement(statement).views]


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("SELECT a FROM orders", ["SELECT", "a", "FROM", "orders"]),
        ("a 'orders' \"orders\" b", ["a", "b"]),
        (r"a 'it\'s orders' b 'it''s orders' c", ["a", "b", "c"]),
        ("a r'\\' orders R\"\\\" b", ["a", "orders", "b"]),
        ("a -- orders\nb", ["a", "b"]),
        ("a /* orders /* users */ clicks */ b", ["a", "b"]),
        ("a /* orders", ["a"]),
        ("`eu.orders`.`a``b`", ["eu.orders", "a`b"]),
        ("a'", ["a"]),
        ("1e3 größe", ["1e3", "größe"]),
        ("", []),
    ],
)
def test_names_in_strings_and_comments_are_ignored(statement: str, found: list[str]) -> None:
    assert words(statement) == found


def test_tokens_have_kind_text_and_position() -> None:
    assert list(tokenize_sql("a|>b")) == [
        SqlToken(TokenKind.WORD, "a", 0, 1),
        SqlToken(TokenKind.SYMBOL, "|>", 1, 3),
        SqlToken(TokenKind.WORD, "b", 3, 4),
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT 1;\n-- a; b\nSELECT ';' ; ", ["SELECT 1", "SELECT ';'"]),
        (";;\n;", []),
        ("-- nothing", []),
        ("BEGIN SELECT 1; SELECT 2; END;", ["BEGIN SELECT 1; SELECT 2; END;"]),
    ],
)
def test_text_is_split_into_statements_at_semicolons(text: str, found: list[str]) -> None:
    assert split_statements(text) == found


def test_statement_resolves_only_named_views() -> None:
    statement = "SELECT * FROM orders o JOIN orders_cold c USING (id) JOIN `Users_HOT` USING (id)"
    assert views(statement, "orders", "users", "clicks") == [
        ("orders", "orders", TopicViewScope.BOTH),
        ("orders_cold", "orders", TopicViewScope.COLD),
        ("Users_HOT", "users", TopicViewScope.HOT),
    ]


def test_topic_named_like_a_half_takes_precedence() -> None:
    assert views("FROM orders_hot", "orders", "orders_hot") == [("orders_hot", "orders_hot", TopicViewScope.BOTH)]


def test_unquoted_name_is_resolved_if_unambiguous() -> None:
    names = TopicNames(["eu.orders", "us-orders", "us_orders", "a.b", "a-b"])
    assert names.resolve("eu.orders") == TopicView("eu.orders", "eu.orders", TopicViewScope.BOTH)
    assert names.resolve("eu_orders_hot") == TopicView("eu_orders_hot", "eu.orders", TopicViewScope.HOT)
    assert names.resolve("us_orders") == TopicView("us_orders", "us_orders", TopicViewScope.BOTH)
    assert names.resolve("a-b_cold") == TopicView("a-b_cold", "a-b", TopicViewScope.COLD)
    with pytest.raises(AmbiguousNameError, match=r"a_b could refer to several topics: write `a-b` or `a\.b`"):
        names.resolve("a_b")
    assert names.resolve("eu") is None
    named = names.resolve_statement("SELECT a_b FROM eu_orders")
    assert [view.topic for view in named.views] == ["eu.orders"]
    assert list(named.ambiguous) == ["a_b"], "the name may be a column"


def test_topics_differing_in_case_are_ambiguous_in_one_statement() -> None:
    names = TopicNames(["Orders", "orders"])
    assert names.resolve("Orders") == TopicView("Orders", "Orders", TopicViewScope.BOTH)
    assert names.resolve("orders_hot") == TopicView("orders_hot", "orders", TopicViewScope.HOT)
    with pytest.raises(AmbiguousNameError, match="write `Orders` or `orders`"):
        names.resolve("ORDERS")
    with pytest.raises(AmbiguousNameError, match="different topics, but the same name in Spark"):
        names.resolve_statement("SELECT * FROM orders, Orders")


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("SELECT count(*) FROM orders", []),
        ("SELECT amount FROM orders WHERE `_offset` > 1", ["_offset", "Amount"]),
        ("SELECT user.id * 2, 3 * amount, (_offset) * 2 FROM orders", ["_offset", "Amount", "user"]),
        ("WITH a AS (SELECT _key FROM orders) SELECT count ( * ) FROM a", ["_key"]),
    ],
)
def test_unreferenced_columns_are_pruned(statement: str, found: list[str]) -> None:
    assert find_referenced_columns(statement, COLUMNS) == found


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM orders",
        "SELECT o.* FROM orders o",
        "SELECT DISTINCT * FROM orders",
        "SELECT 1, * FROM orders",
        "SELECT count(*) FROM (SELECT * FROM orders)",
        "SELECT count(DISTINCT *) FROM orders",
        "SELECT hash(*) FROM orders",
        "FROM orders",
        "SELECT 1 UNION ALL FROM orders",
        "SELECT count(*) FROM (FROM orders)",
        "FROM orders |> WHERE amount > 1",
        "SELECT count(*) FROM orders NATURAL JOIN users",
        "SELECT amount FROM orders PIVOT (sum(amount) FOR user IN ('a'))",
        "TABLE orders",
        "DESCRIBE orders",
        "CREATE TEMP VIEW v AS SELECT amount FROM orders",
        "EXECUTE IMMEDIATE 'SELECT * FROM orders'",
    ],
)
def test_statement_with_implicit_columns_gets_all_columns(statement: str) -> None:
    assert find_referenced_columns(statement, COLUMNS) == COLUMNS


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM orders",
        "select a from `eu.orders` where a = 'SELECT' order by a;",
        "SELECT o.a, sum(b) FROM orders AS o WHERE a > 1 GROUP BY o.a HAVING sum(b) > 2 LIMIT 3",
        "SELECT a FROM orders o ORDER BY a",
        "SELECT a -- FROM orders\nFROM orders",
    ],
)
def test_select_from_one_view_has_single_scan(statement: str) -> None:
    assert has_single_scan(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "",
        "FROM orders",
        "SELECT 1",
        "SELECT a FROM orders WHERE a = 1 UNION ALL SELECT a FROM orders",
        "SELECT a FROM orders UNION ALL TABLE orders",
        "SELECT a FROM orders WHERE a = 1 UNION ALL FROM orders",
        "WITH o AS (SELECT * FROM orders) SELECT * FROM o",
        "SELECT a FROM orders, orders AS o",
        "SELECT a FROM orders a, orders b WHERE a.n = b.n",
        "SELECT a FROM orders JOIN orders AS o USING (a)",
        "SELECT a FROM orders AS o JOIN clicks",
        "SELECT a FROM orders NATURAL JOIN clicks",
        "SELECT a FROM (SELECT a FROM orders)",
        "SELECT a FROM orders WHERE a IN (SELECT max(a) FROM orders WHERE b = 1)",
        "SELECT a FROM orders WHERE EXISTS (TABLE orders)",
        "SELECT extract(DAY FROM b) FROM orders",
        "SELECT a FROM IDENTIFIER('orders')",
        "SELECT a FROM lake.orders",
        "SELECT a FROM orders PIVOT (sum(a) FOR b IN ('x'))",
        "SELECT a FROM orders LATERAL VIEW explode(b) AS c",
        "SELECT a FROM orders WHERE a = 1 |> WHERE b = 2",
        "CREATE TEMPORARY VIEW v AS SELECT a FROM orders",
    ],
)
def test_other_statement_may_scan_a_view_several_times(statement: str) -> None:
    assert not has_single_scan(statement)
