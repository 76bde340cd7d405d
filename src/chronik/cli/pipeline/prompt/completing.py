"""Which words may be meant by the beginning of one: keywords, topics, and columns of the topics that the statement
names. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from chronik.pipeline.query.tokens import Token, lexemes


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


KEYWORDS: Final = _words(
    """ALL AND AS ASC BETWEEN BY CASE CAST CROSS DATE DAY DESC DESCRIBE DISTINCT ELSE END EXCEPT EXISTS EXPLAIN FALSE
    FROM FULL GROUP HAVING HOUR IN INNER INTERSECT INTERVAL IS JOIN LATERAL LEFT LIKE LIMIT MINUTE MONTH NOT NULL NULLS
    OFFSET ON OR ORDER OUTER OVER PARTITION RIGHT SECOND SELECT SHOW TABLES THEN TIMESTAMP TRUE UNION USING VALUES WHEN
    WHERE WINDOW WITH YEAR"""
)
FUNCTIONS: Final = _words(
    """avg coalesce collect_list concat count current_timestamp date_format date_trunc explode first get_json_object
    hour last length lower max min now percentile regexp_extract round row_number split substring sum to_date
    to_timestamp trim upper"""
)
OF_ALL: Final = ("_partition", "_offset", "_timestamp", "_key", "_headers", "_date", "_value")
"""Columns of all topics, or of most: for a statement that names none yet."""

BEFORE_TABLES: Final = ("FROM", "JOIN", "TABLE", "DESCRIBE", "DESC", "\\D")
DELIMITERS: Final = " \t\n,;()=<>!+*/|%"
"""What a word ends at, for readline: a dot and a backtick do not."""

_PLAIN: Final = re.compile(r"[A-Za-z_]\w*")


def quoted(name: str) -> str:
    """Returns it as a statement needs it: in backticks unless it is plain."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def completions(
    before: str, word: str, tables: Sequence[str], columns: Callable[[str], Iterable[str]], after: str = ""
) -> list[str]:
    """`before` is the statement up to the word, `after` what stands behind it. `columns` tells those of a table."""
    qualifier, dot, start = word.rpartition(".")
    if dot and not word.startswith("`"):
        meant = _named(_unquoted(qualifier), tables)
        return [f"{qualifier}.{quoted(each)}" for each in _fitting(start, columns(meant))] if meant else []
    words = [each.text.upper() for each in lexemes(before) if each.token is not Token.STRING]
    previous = words[-1] if words else ""
    if previous in BEFORE_TABLES or before.rstrip().upper().endswith(BEFORE_TABLES):
        return [quoted(each) for each in _fitting(word, tables)]
    named = _tables_in(f"{before} {after}", tables)
    found = [quoted(each) for table in named for each in _fitting(word, columns(table))]
    if word:
        found += _fitting(word, OF_ALL) if not named else []
        found += [each if word.isupper() else each.lower() for each in _fitting(word, KEYWORDS)]
        found += [f"{each}(" for each in _fitting(word, FUNCTIONS)]
        found += [quoted(each) for each in _fitting(word, tables)]
    return list(dict.fromkeys(found))


def _fitting(word: str, names: Iterable[str]) -> list[str]:
    start = _unquoted(word).casefold()
    return [name for name in names if name.casefold().startswith(start)]


def _tables_in(text: str, tables: Sequence[str]) -> list[str]:
    """Returns those that a statement names; where it names none yet, as after SELECT, none."""
    words = {each.text.casefold() for each in lexemes(text) if each.token in (Token.WORD, Token.QUOTED)}
    return [name for name in tables if name.casefold() in words]


def _named(name: str, tables: Sequence[str]) -> str | None:
    return next((each for each in tables if each.casefold() == name.casefold()), None)


def _unquoted(word: str) -> str:
    return word.strip("`").replace("``", "`")
