"""Tab completion of SQL keywords, functions, topics and columns. Free of I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from chronik.pipeline.query.lexer import TokenKind, tokenize_sql


def _split_words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


KEYWORDS: Final = _split_words(
    """ALL AND AS ASC BETWEEN BY CASE CAST CROSS DATE DAY DESC DESCRIBE DISTINCT ELSE END EXCEPT EXISTS EXPLAIN FALSE
    FROM FULL GROUP HAVING HOUR IN INNER INTERSECT INTERVAL IS JOIN LATERAL LEFT LIKE LIMIT MINUTE MONTH NOT NULL NULLS
    OFFSET ON OR ORDER OUTER OVER PARTITION RIGHT SECOND SELECT SHOW TABLES THEN TIMESTAMP TRUE UNION USING VALUES WHEN
    WHERE WINDOW WITH YEAR"""
)
FUNCTIONS: Final = _split_words(
    """avg coalesce collect_list concat count current_timestamp date_format date_trunc explode first get_json_object
    hour last length lower max min now percentile regexp_extract round row_number split substring sum to_date
    to_timestamp trim upper"""
)
COMMON_COLUMNS: Final = ("_partition", "_offset", "_timestamp", "_key", "_headers", "_date", "_value")
"""Columns that most tables have, offered while the statement names no table."""

BEFORE_TABLES: Final = ("FROM", "JOIN", "TABLE", "DESCRIBE", "DESC", "\\D")
DELIMITERS: Final = " \t\n,;()=<>!+*/|%"
"""Word delimiters for readline; dots and backticks are part of a word."""

_PLAIN: Final = re.compile(r"[A-Za-z_]\w*")


def quote_identifier(name: str) -> str:
    """Quote an identifier with backticks if necessary."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def complete_word(
    before: str, word: str, tables: Sequence[str], columns: Callable[[str], Iterable[str]], after: str = ""
) -> list[str]:
    """Return the completions of a word in a statement.

    Args:
        before: The statement up to the word.
        word: The start of the word.
        tables: The names of all tables.
        columns: Returns the columns of a table.
        after: The statement after the word.
    """
    qualifier, dot, start = word.rpartition(".")
    if dot and not word.startswith("`"):
        table_name = _find_table(_unquote(qualifier), tables)
        return (
            [f"{qualifier}.{quote_identifier(each)}" for each in _matching(start, columns(table_name))]
            if table_name
            else []
        )
    words = [each.text.upper() for each in tokenize_sql(before) if each.kind is not TokenKind.STRING]
    previous = words[-1] if words else ""
    if previous in BEFORE_TABLES or before.rstrip().upper().endswith(BEFORE_TABLES):
        return [quote_identifier(each) for each in _matching(word, tables)]
    named = _named_tables(f"{before} {after}", tables)
    found = [quote_identifier(each) for table in named for each in _matching(word, columns(table))]
    if word:
        found += _matching(word, COMMON_COLUMNS) if not named else []
        found += [each if word.isupper() else each.lower() for each in _matching(word, KEYWORDS)]
        found += [f"{each}(" for each in _matching(word, FUNCTIONS)]
        found += [quote_identifier(each) for each in _matching(word, tables)]
    return list(dict.fromkeys(found))


def _matching(word: str, names: Iterable[str]) -> list[str]:
    start = _unquote(word).casefold()
    return [name for name in names if name.casefold().startswith(start)]


def _named_tables(text: str, tables: Sequence[str]) -> list[str]:
    """Return the tables that a statement names."""
    words = {each.text.casefold() for each in tokenize_sql(text) if each.kind in (TokenKind.WORD, TokenKind.QUOTED)}
    return [name for name in tables if name.casefold() in words]


def _find_table(name: str, tables: Sequence[str]) -> str | None:
    return next((each for each in tables if each.casefold() == name.casefold()), None)


def _unquote(word: str) -> str:
    return word.strip("`").replace("``", "`")
