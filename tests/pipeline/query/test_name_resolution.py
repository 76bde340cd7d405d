"""Resolution of names in SQL statements to topics, halves and columns; also the lexer."""

from __future__ import annotations

import pytest

from chronik.pipeline.query.names import AmbiguousName, Half, Names, View, columns_named
from chronik.pipeline.query.tokens import Lexeme, Token, lexemes, statements

COLUMNS = ["_partition", "_offset", "_key", "Amount", "user"]


def words(statement: str) -> list[str]:
    return [each.text for each in lexemes(statement) if each.token in (Token.WORD, Token.QUOTED)]


def views(statement: str, *topics: str) -> list[tuple[str, str, str]]:
    return [(view.name, view.topic, view.half) for view in Names(topics).named_in(statement).views]


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
    assert list(lexemes("a|>b")) == [
        Lexeme(Token.WORD, "a", 0, 1),
        Lexeme(Token.SYMBOL, "|>", 1, 3),
        Lexeme(Token.WORD, "b", 3, 4),
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
    assert statements(text) == found


def test_statement_resolves_only_named_views() -> None:
    statement = "SELECT * FROM orders o JOIN orders_cold c USING (id) JOIN `Users_HOT` USING (id)"
    assert views(statement, "orders", "users", "clicks") == [
        ("orders", "orders", Half.BOTH),
        ("orders_cold", "orders", Half.COLD),
        ("Users_HOT", "users", Half.HOT),
    ]


def test_topic_named_like_a_half_takes_precedence() -> None:
    assert views("FROM orders_hot", "orders", "orders_hot") == [("orders_hot", "orders_hot", Half.BOTH)]


def test_unquoted_name_is_resolved_if_unambiguous() -> None:
    names = Names(["eu.orders", "us-orders", "us_orders", "a.b", "a-b"])
    assert names.find("eu.orders") == View("eu.orders", "eu.orders", Half.BOTH)
    assert names.find("eu_orders_hot") == View("eu_orders_hot", "eu.orders", Half.HOT)
    assert names.find("us_orders") == View("us_orders", "us_orders", Half.BOTH)
    assert names.find("a-b_cold") == View("a-b_cold", "a-b", Half.COLD)
    with pytest.raises(AmbiguousName, match=r"a_b could refer to several topics: write `a-b` or `a\.b`"):
        names.find("a_b")
    assert names.find("eu") is None
    named = names.named_in("SELECT a_b FROM eu_orders")
    assert [view.topic for view in named.views] == ["eu.orders"]
    assert list(named.ambiguous) == ["a_b"], "the name may be a column"


def test_topics_differing_in_case_are_ambiguous_in_one_statement() -> None:
    names = Names(["Orders", "orders"])
    assert names.find("Orders") == View("Orders", "Orders", Half.BOTH)
    assert names.find("orders_hot") == View("orders_hot", "orders", Half.HOT)
    with pytest.raises(AmbiguousName, match="write `Orders` or `orders`"):
        names.find("ORDERS")
    with pytest.raises(AmbiguousName, match="different topics, but the same name in Spark"):
        names.named_in("SELECT * FROM orders, Orders")


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
    assert columns_named(statement, COLUMNS) == found


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
    assert columns_named(statement, COLUMNS) == COLUMNS
