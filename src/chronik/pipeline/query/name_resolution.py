"""Resolution of the names in an SQL statement to topics, halves of topics, and columns.

A topic `orders` is a view `orders`, with `orders_cold` (landed rows) and `orders_hot` (the live tail). A topic whose
name needs backticks, such as `` `eu.orders` ``, is also `eu_orders`. Spark ignores the case of names, so a view is
found in any case if it is unambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from chronik.errors import ChronikError
from chronik.pipeline.query.lexer import SqlToken, TokenKind, tokenize_sql
from chronik.pipeline.query.time_travel import PointInTime


class AmbiguousNameError(ChronikError):
    """A name in a statement could refer to several topics. The message lists them."""


class TopicViewScope(StrEnum):
    """The part of a topic that a view shows: rows in the table (cold), records not yet in it (hot), or both.

    The value is the suffix of the view's name.
    """

    BOTH = ""
    COLD = "_cold"
    HOT = "_hot"


class TopicView(NamedTuple):
    """A Spark view of a topic: of its cold half, its hot half, or both."""

    name: str
    """The name of the view in Spark."""
    topic: str
    half: TopicViewScope
    as_of: PointInTime | None = None


class _Candidate(NamedTuple):
    rank: int
    """Precedence (lower wins): exact topic name, name of a half, then both with special characters replaced."""
    topic: str
    half: TopicViewScope


class ResolvedNames(NamedTuple):
    """The views that a statement may refer to."""

    views: list[TopicView]
    ambiguous: dict[str, AmbiguousNameError]
    """Ambiguous names. They are errors only if they are used as views."""


class TopicNames:
    """All names by which statements can refer to topics."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._candidates: dict[str, set[_Candidate]] = {}
        for topic in topics:
            folded = to_unquoted_name(topic)
            for half in TopicViewScope:
                self._add(topic + half, _Candidate(0 if half is TopicViewScope.BOTH else 1, topic, half))
                if folded != topic:
                    self._add(folded + half, _Candidate(2 if half is TopicViewScope.BOTH else 3, topic, half))

    def _add(self, name: str, candidate: _Candidate) -> None:
        self._candidates.setdefault(name.casefold(), set()).add(candidate)

    def resolve(self, name: str) -> TopicView | None:
        """Return the view that a name refers to, or None if there is none.

        Raises:
            AmbiguousNameError: Several topics could be meant.
        """
        candidates = self._candidates.get(name.casefold(), set())
        best_rank = min((each.rank for each in candidates), default=0)
        best_candidates = sorted(each for each in candidates if each.rank == best_rank)
        if len(best_candidates) > 1:
            exact = [
                each
                for each in best_candidates
                if name in (each.topic + each.half, to_unquoted_name(each.topic) + each.half)
            ]
            best_candidates = exact if len(exact) == 1 else best_candidates
        if len(best_candidates) > 1:
            alternatives = " or ".join(f"`{each.topic + each.half}`" for each in best_candidates)
            raise AmbiguousNameError(f"{name} could refer to several topics: write {alternatives}")
        return TopicView(name, best_candidates[0].topic, best_candidates[0].half) if best_candidates else None

    def resolve_statement(self, statement: str, also: Iterable[str] = ()) -> ResolvedNames:
        """Resolve all names in a statement, and the additional names in `also`.

        Names of columns are resolved too: that costs one more snapshot, but does not change the result.

        Raises:
            AmbiguousNameError: Two names in the statement differ only in case, but refer to different topics.
        """
        views: dict[str, TopicView] = {}
        ambiguous: dict[str, AmbiguousNameError] = {}
        words = (each.text for each in tokenize_sql(statement) if each.kind in (TokenKind.WORD, TokenKind.QUOTED))
        for name in (*words, *also):
            try:
                view = self.resolve(name)
            except AmbiguousNameError as error:
                ambiguous[name] = error
                continue
            if view is None:
                continue
            other = views.setdefault(name.casefold(), view)
            if other.topic != view.topic:
                raise AmbiguousNameError(
                    f"{view.name} and {other.name} are different topics, but the same name in Spark"
                )
        return ResolvedNames(list(views.values()), ambiguous)


def to_unquoted_name(topic: str) -> str:
    """Return a name for a topic that needs no backticks."""
    return re.sub(r"\W", "_", topic)


IMPLICIT_COLUMN_KEYWORDS = frozenset(
    {
        "NATURAL", "PIVOT", "UNPIVOT", "TABLE", "DESCRIBE", "DESC", "SHOW", "CREATE", "CACHE", "MERGE", "BEGIN",
        "IMMEDIATE",
    }
)  # fmt: skip
"""Keywords of statements that may depend on columns without naming them."""

SET_OPERATORS = ("UNION", "EXCEPT", "MINUS", "INTERSECT")


def find_referenced_columns(statement: str, columns: Sequence[str]) -> list[str]:
    """Return the columns that a statement names, or all columns if it may depend on others."""
    found = list(tokenize_sql(statement))
    if _may_need_all_columns(found):
        return list(columns)
    words = {each.text.casefold() for each in found if each.kind in (TokenKind.WORD, TokenKind.QUOTED)}
    return [name for name in columns if name.casefold() in words]


CLAUSES_AFTER_FROM = ("WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET")


def has_single_scan(statement: str) -> bool:
    """Return whether a statement reads one view once: a SELECT without joins, subqueries and set operators."""
    found = list(tokenize_sql(statement))
    if found and found[-1].is_symbol(";"):
        found.pop()
    words = [each.text.upper() for each in found if each.kind is TokenKind.WORD]
    if words[:1] != ["SELECT"] or words.count("SELECT") != 1 or words.count("FROM") != 1:
        return False
    if any(each.is_symbol("|>") or each.is_word("TABLE", *SET_OPERATORS) for each in found):
        return False
    start = next(position for position, each in enumerate(found) if each.is_word("FROM")) + 1
    view, rest = found[start : start + 1], found[start + 1 :]
    if not view or view[0].kind not in (TokenKind.WORD, TokenKind.QUOTED):
        return False
    if rest and rest[0].is_word("AS"):
        rest = rest[1:]
    if rest and rest[0].kind in (TokenKind.WORD, TokenKind.QUOTED) and not rest[0].is_word(*CLAUSES_AFTER_FROM):
        rest = rest[1:]  # an alias
    return not rest or rest[0].is_word(*CLAUSES_AFTER_FROM)


def _may_need_all_columns(found: Sequence[SqlToken]) -> bool:
    selecting = [False]
    """For the top level and each open parenthesis, whether the current query has a SELECT."""
    for position, each in enumerate(found):
        if each.is_symbol("|>") or each.is_word(*IMPLICIT_COLUMN_KEYWORDS):
            return True
        if each.is_symbol("*") and not _is_count(found, position) and not _is_multiplication(found, position):
            return True
        if each.is_word("FROM") and not selecting[-1]:
            return True  # `FROM orders` alone is `SELECT * FROM orders`
        if each.is_symbol("("):
            selecting.append(False)
        elif each.is_symbol(")") and len(selecting) > 1:
            selecting.pop()
        elif each.is_word("SELECT", *SET_OPERATORS):
            selecting[-1] = each.is_word("SELECT")
    return not any(each.is_word("SELECT") for each in found)


def _is_count(found: Sequence[SqlToken], star: int) -> bool:
    around = found[max(0, star - 2) : star + 2]
    return len(around) == 4 and around[0].is_word("COUNT") and around[1].is_symbol("(") and around[3].is_symbol(")")


def _is_multiplication(found: Sequence[SqlToken], star: int) -> bool:
    """Return whether a `*` follows a value and thus is a multiplication."""
    before = found[star - 1] if star > 0 else None
    if before is None or before.kind is TokenKind.SYMBOL:
        return before is not None and before.is_symbol(")")
    return not before.is_word("SELECT", "DISTINCT", "ALL")
