"""`AS OF` clauses of statements, which read a topic as of a version of its table, a time or offsets.

Spark's grammar has `orders VERSION AS OF 3` and `orders TIMESTAMP AS OF '2026-11-19'` for tables of some catalogs, but
not for views. Each clause on a topic is therefore replaced by the name of a view that is created for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from chronik.errors import ChronikError
from chronik.pipeline.query.lexer import SqlToken, TokenKind, tokenize_sql
from chronik.pipeline.tables.as_of import AsOf, AsOfTime, AsOfVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATEST_OFFSET: Final = -1
"""The offset that stands for the current end of a partition, as in Spark's Kafka source."""

VERSION_MAX: Final = 2**63 - 1

EXAMPLES: Final = {
    "VERSION": "VERSION AS OF 3",
    "TIMESTAMP": "TIMESTAMP AS OF '2026-11-19 08:30:00'",
    "OFFSETS": """OFFSETS AS OF '{"0": 100, "1": 57}'""",
}


class AsOfClauseError(ChronikError):
    """An `AS OF` clause that cannot be evaluated. The message shows a valid one."""


class AsOfKind(StrEnum):
    """The first keyword of an `AS OF` clause."""

    VERSION = "VERSION"
    TIMESTAMP = "TIMESTAMP"
    OFFSETS = "OFFSETS"


KEYWORDS: Final = {
    "VERSION": AsOfKind.VERSION,
    "SYSTEM_VERSION": AsOfKind.VERSION,
    "TIMESTAMP": AsOfKind.TIMESTAMP,
    "SYSTEM_TIME": AsOfKind.TIMESTAMP,
    "OFFSETS": AsOfKind.OFFSETS,
}
"""The keywords of Spark's grammar, and OFFSETS."""

AFTER_RELATION: Final = (
    "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "WINDOW", "UNION",
    "EXCEPT", "MINUS", "INTERSECT", "JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "ANTI", "SEMI", "ON",
    "USING", "LATERAL", "PIVOT", "UNPIVOT", "TABLESAMPLE", "WHEN", "SELECT", "INSERT", "VERSION", "TIMESTAMP",
    "OFFSETS", "FOR", "MATCH_RECOGNIZE", "QUALIFY",
)  # fmt: skip
"""Keywords after a relation that has no alias."""

INTERVAL_UNITS: Final = ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")


@dataclass(frozen=True, slots=True)
class AsOfOffsets:
    """The records of a topic below an offset of each partition, whether they have landed or not."""

    end_offsets: tuple[tuple[int, int], ...]
    """Pairs of a partition and the first offset that is excluded; LATEST_OFFSET for the end of the partition."""


PointInTime = AsOf | AsOfOffsets


class AsOfClause(NamedTuple):
    """An `AS OF` clause of a statement."""

    name: str
    """The name of the topic's view, as written in the statement."""
    view: str
    """The name of the view that replaces the clause."""
    kind: AsOfKind
    value: str
    """The version, time or offsets as an SQL expression."""

    def __str__(self) -> str:
        return f"{self.name} {self.kind} AS OF {self.value}"


class TimeTravelStatement(NamedTuple):
    """A statement whose `AS OF` clauses were replaced by names of views."""

    text: str
    text_without_clauses: str
    """The statement without the topics that have a clause, to find the others."""
    clauses: tuple[AsOfClause, ...]


class _Replacement(NamedTuple):
    start: int
    end: int
    text: str


def parse_as_of_clauses(statement: str, is_topic: Callable[[str], bool]) -> TimeTravelStatement:
    """Replace the `AS OF` clauses of topics in a statement.

    Args:
        statement: The statement.
        is_topic: Returns whether a name is that of a topic's view. Clauses of other relations are left to Spark.

    Raises:
        AsOfClauseError: A clause is incomplete, or a topic has several.
    """
    tokens = list(tokenize_sql(statement))
    clauses: list[AsOfClause] = []
    replacements: list[_Replacement] = []
    views: dict[tuple[str, AsOfKind, str], str] = {}
    position = 0
    while position < len(tokens):
        start = _find_clause(tokens, position)
        name = tokens[position]
        if start is None or not is_topic(name.text):
            position += 1
            continue
        kind = KEYWORDS[tokens[start].text.upper()]
        end = _find_value_end(tokens, start + 3, kind)
        value = statement[tokens[start + 3].start : tokens[end - 1].end] if end > start + 3 else ""
        if not value:
            raise AsOfClauseError(f"{name.text} {kind} AS OF: no value that can be read; write {EXAMPLES[kind]}")
        if _starts_clause(tokens, end):
            raise AsOfClauseError(f"{name.text} has several AS OF clauses: use one of VERSION, TIMESTAMP and OFFSETS")
        key = name.text.casefold(), kind, value
        view = views.setdefault(key, f"{name.text}@{len(views) + 1}")
        clauses.append(AsOfClause(name.text, view, kind, value))
        sample_end = _skip_sample(tokens, end)
        alias = "" if _has_alias(tokens, sample_end) else f" {_quote(name.text)}"
        span = tokens[end - 1].end - name.start
        if sample_end == end:
            # Filled up to the same length, so that the positions in Spark's error messages are right.
            replacements.append(_Replacement(name.start, tokens[end - 1].end, f"{_quote(view)}{alias}".ljust(span)))
        else:
            replacements.append(_Replacement(name.start, tokens[end - 1].end, _quote(view)))
            replacements.append(_Replacement(tokens[sample_end - 1].end, tokens[sample_end - 1].end, alias))
        position = end
    blanks = [_Replacement(each.start, each.end, " ") for each in replacements]
    return TimeTravelStatement(_replace(statement, replacements), _replace(statement, blanks), tuple(clauses))


def _find_clause(tokens: Sequence[SqlToken], position: int) -> int | None:
    """Return the position of the keyword of an `AS OF` clause after the name at `position`, or None."""
    if tokens[position].kind not in (TokenKind.WORD, TokenKind.QUOTED):
        return None
    if position and tokens[position - 1].is_symbol("."):
        return None  # a table in a database of Spark's catalog
    start = position + 1
    if start < len(tokens) and tokens[start].is_word("FOR"):
        start += 1
    return start if _starts_clause(tokens, start) else None


def _starts_clause(tokens: Sequence[SqlToken], start: int) -> bool:
    if start < len(tokens) and tokens[start].is_word("FOR"):
        start += 1
    words = tokens[start : start + 3]
    return len(words) == 3 and words[0].is_word(*KEYWORDS) and words[1].is_word("AS") and words[2].is_word("OF")


def _find_value_end(tokens: Sequence[SqlToken], start: int, kind: AsOfKind) -> int:
    """Return the position after the value of a clause; `start` if there is none."""
    if kind is not AsOfKind.TIMESTAMP:
        is_value = start < len(tokens) and (
            tokens[start].kind is TokenKind.STRING or (kind is AsOfKind.VERSION and tokens[start].text.isdecimal())
        )
        return start + 1 if is_value else start
    end = _find_operand_end(tokens, start)
    while end > start and end < len(tokens) and (tokens[end].is_symbol("+") or tokens[end].is_symbol("-")):
        operand_end = _find_operand_end(tokens, end + 1)
        if operand_end == end + 1:
            break
        end = operand_end
    return end


def _find_operand_end(tokens: Sequence[SqlToken], start: int) -> int:
    """Return the position after a literal, an interval, a function call or a parenthesis."""
    if start >= len(tokens):
        return start
    first = tokens[start]
    if first.is_symbol("("):
        return _find_closing_parenthesis(tokens, start)
    if first.kind is TokenKind.STRING:
        return start + 1
    if first.kind is not TokenKind.WORD:
        return start
    if first.is_word("INTERVAL"):
        return _find_interval_end(tokens, start + 1)
    after = tokens[start + 1 : start + 2]
    if after and after[0].is_symbol("("):
        return _find_closing_parenthesis(tokens, start + 1)
    if after and after[0].kind is TokenKind.STRING:
        return start + 2  # such as TIMESTAMP '…'
    return start + 1  # a number, or a function without parentheses such as current_timestamp


def _find_interval_end(tokens: Sequence[SqlToken], start: int) -> int:
    end = start
    while end < len(tokens) and (tokens[end].kind is TokenKind.STRING or tokens[end].text.isdecimal()):
        end += 1
        while end < len(tokens) and (
            tokens[end].is_word("TO") or tokens[end].text.upper().removesuffix("S") in INTERVAL_UNITS
        ):
            end += 1
    return end


def _find_closing_parenthesis(tokens: Sequence[SqlToken], start: int) -> int:
    """Return the position after the parenthesis that closes the one at `start`; `start` if it is never closed."""
    depth = 0
    for position in range(start, len(tokens)):
        depth += tokens[position].is_symbol("(") - tokens[position].is_symbol(")")
        if depth == 0:
            return position + 1
    return start


def _skip_sample(tokens: Sequence[SqlToken], start: int) -> int:
    """Return the position after `TABLESAMPLE (…) REPEATABLE (…)`, which precedes the alias."""
    end = start
    for word in ("TABLESAMPLE", "REPEATABLE"):
        if end < len(tokens) and tokens[end].is_word(word):
            end += 1
            if end < len(tokens) and tokens[end].is_word("SYSTEM", "BERNOULLI"):
                end += 1
            if end < len(tokens) and tokens[end].is_symbol("("):
                end = _find_closing_parenthesis(tokens, end)
    return end


def _has_alias(tokens: Sequence[SqlToken], start: int) -> bool:
    if start >= len(tokens):
        return False
    following = tokens[start]
    return following.kind is TokenKind.QUOTED or (
        following.kind is TokenKind.WORD and not following.is_word(*AFTER_RELATION)
    )


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _replace(text: str, replacements: Iterable[_Replacement]) -> str:
    parts, position = [], 0
    for each in replacements:
        parts += [text[position : each.start], each.text]
        position = each.end
    return "".join([*parts, text[position:]])


# Values


def evaluate_clause(clause: AsOfClause, evaluate_time: Callable[[str], datetime | None]) -> PointInTime:
    """Return the point in time of a clause. `evaluate_time` evaluates an SQL expression.

    Raises:
        AsOfClauseError: The value is invalid.
    """
    if clause.kind is AsOfKind.OFFSETS:
        return _parse_offsets(clause)
    if clause.kind is AsOfKind.VERSION:
        text = _unquote(clause.value)
        if not text.isdecimal() or int(text) > VERSION_MAX:
            raise AsOfClauseError(f"{clause}: not the number of a version; write {EXAMPLES[clause.kind]}")
        return AsOfVersion(int(text))
    found = evaluate_time(clause.value)
    if found is None:
        raise AsOfClauseError(f"{clause}: not a time; write {EXAMPLES[clause.kind]}")
    return AsOfTime(found)


def _unquote(value: str) -> str:
    is_string = value[:1] in ("'", '"') and value[-1:] == value[:1] and len(value) > 1
    return value[1:-1] if is_string else value


def _parse_offsets(clause: AsOfClause) -> AsOfOffsets:
    try:
        found = json.loads(_unquote(clause.value))
    except ValueError:
        found = None
    is_valid = (
        isinstance(found, dict)
        and bool(found)
        and all(name.isascii() and name.isdecimal() and type(offset) is int for name, offset in found.items())
        and all(LATEST_OFFSET <= offset <= VERSION_MAX for offset in found.values())
    )
    if not is_valid:
        raise AsOfClauseError(f"{clause}: not a JSON object of partitions and offsets; write {EXAMPLES[clause.kind]}")
    return AsOfOffsets(tuple(sorted((int(name), offset) for name, offset in found.items())))


def evaluate_time_in_spark(spark: SparkSession, expression: str) -> datetime | None:
    """Evaluate an expression as a timestamp in the session's time zone; return None if it is not a timestamp."""
    statement = f"SELECT unix_micros(try_cast(({expression}) AS TIMESTAMP)) AS found"
    found: int | None = spark.sql(statement).collect()[0]["found"]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    try:
        return None if found is None else epoch + timedelta(microseconds=found)
    except OverflowError:
        return None
