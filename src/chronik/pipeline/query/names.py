"""What the names in a statement stand for: topics, halves of them, and their columns. Pure.

A topic `orders` is a view `orders`, with `orders_cold` (what has landed) and `orders_hot` (what has not). A topic whose
name needs backticks, `` `eu.orders` ``, is `eu_orders` too. Spark does not care about the case of a name, so a view is
found whatever its case, as long as only one topic can be meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from chronik.errors import ChronikError
from chronik.pipeline.query.tokens import Lexeme, Token, lexemes


class AmbiguousName(ChronikError):
    """A name in a statement may be one topic or another; the message names them."""


class Half(StrEnum):
    BOTH = ""
    COLD = "_cold"
    HOT = "_hot"


class View(NamedTuple):
    name: str
    """As Spark knows it."""
    topic: str
    half: Half


class _Meaning(NamedTuple):
    rank: int
    """Names of topics go before names of halves, and those before names without backticks."""
    topic: str
    half: Half


class Named(NamedTuple):
    """What a statement may be about."""

    views: list[View]
    ambiguous: dict[str, AmbiguousName]
    """Names that may be one topic or another: no harm unless it is a topic that is meant."""


class Names:
    """Every name that a statement may call a topic by."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._meanings: dict[str, set[_Meaning]] = {}
        for topic in topics:
            folded = plain(topic)
            for half in Half:
                self._add(topic + half, _Meaning(0 if half is Half.BOTH else 1, topic, half))
                if folded != topic:
                    self._add(folded + half, _Meaning(2 if half is Half.BOTH else 3, topic, half))

    def _add(self, name: str, meaning: _Meaning) -> None:
        self._meanings.setdefault(name.casefold(), set()).add(meaning)

    def find(self, name: str) -> View | None:
        """Raises AmbiguousName."""
        meanings = self._meanings.get(name.casefold(), set())
        best = min((each.rank for each in meanings), default=0)
        meant = sorted(each for each in meanings if each.rank == best)
        if len(meant) > 1:
            exact = [each for each in meant if name in (each.topic + each.half, plain(each.topic) + each.half)]
            meant = exact if len(exact) == 1 else meant
        if len(meant) > 1:
            told = " or ".join(f"`{each.topic + each.half}`" for each in meant)
            raise AmbiguousName(f"{name}: several topics may be meant, write {told}")
        return View(name, meant[0].topic, meant[0].half) if meant else None

    def named_in(self, statement: str, also: Iterable[str] = ()) -> Named:
        """Finds topics by the names in a statement, and `also` these. A column with a topic's name counts, too: that
        costs a look at the topic, and leaves the answer as it is. Raises AmbiguousName."""
        views: dict[str, View] = {}
        ambiguous: dict[str, AmbiguousName] = {}
        words = (each.text for each in lexemes(statement) if each.token in (Token.WORD, Token.QUOTED))
        for name in (*words, *also):
            try:
                view = self.find(name)
            except AmbiguousName as error:
                ambiguous[name] = error
                continue
            if view is None:
                continue
            other = views.setdefault(name.casefold(), view)
            if other.topic != view.topic:
                raise AmbiguousName(f"{view.name} and {other.name} are two topics, and one name for Spark: use one")
        return Named(list(views.values()), ambiguous)


def plain(topic: str) -> str:
    """Makes a name that needs no backticks."""
    return re.sub(r"\W", "_", topic)


NAMES_NO_COLUMNS = frozenset(
    {
        "NATURAL", "PIVOT", "UNPIVOT", "TABLE", "DESCRIBE", "DESC", "SHOW", "CREATE", "CACHE", "MERGE", "BEGIN",
        "IMMEDIATE",
    }
)  # fmt: skip
"""With one of these words in it, a statement may depend on columns that it does not name."""

SET_OPERATORS = ("UNION", "EXCEPT", "MINUS", "INTERSECT")


def columns_named(statement: str, columns: Sequence[str]) -> list[str]:
    """Returns those that a statement may need: all of them, unless it is plain that it names what it uses."""
    found = list(lexemes(statement))
    if _may_mean_all(found):
        return list(columns)
    words = {each.text.casefold() for each in found if each.token in (Token.WORD, Token.QUOTED)}
    return [name for name in columns if name.casefold() in words]


def _may_mean_all(found: Sequence[Lexeme]) -> bool:
    selecting = [False]
    """For each parenthesis that is open, and for none: whether a SELECT has named columns there."""
    for position, each in enumerate(found):
        if each.is_symbol("|>") or each.is_word(*NAMES_NO_COLUMNS):
            return True
        if each.is_symbol("*") and not _is_count(found, position) and not _is_product(found, position):
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


def _is_count(found: Sequence[Lexeme], star: int) -> bool:
    around = found[max(0, star - 2) : star + 2]
    return len(around) == 4 and around[0].is_word("COUNT") and around[1].is_symbol("(") and around[3].is_symbol(")")


def _is_product(found: Sequence[Lexeme], star: int) -> bool:
    """Says whether a value stands before it."""
    before = found[star - 1] if star > 0 else None
    if before is None or before.token is Token.SYMBOL:
        return before is not None and before.is_symbol(")")
    return not before.is_word("SELECT", "DISTINCT", "ALL")
