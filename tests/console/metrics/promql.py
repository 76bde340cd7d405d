"""Reads as much of PromQL as the dashboard and the alerts use: whether an expression is one, and its result's labels.

Prometheus itself is not there to be asked. What is not known here is refused: a function that is used for the first
time gets a line in a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

SCALAR, VECTOR, RANGE = "scalar", "vector", "range"

TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?(?![\w.]))|(?P<duration>(?:\d+(?:ms|[smhdwy]))+\b)|(?P<name>[a-zA-Z_:][\w:]*)"""
    r"""|(?P<text>"(?:[^"\\]|\\.)*")|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){}\[\],]))"""
)
LEVELS: Final = (("or",), ("and", "unless"), ("==", "!=", ">", "<", ">=", "<="), ("+", "-"), ("*", "/", "%"), ("^",))
"""Operators, those first that bind least."""
COMPARING: Final = LEVELS[2]
SETS: Final = ("or", "and", "unless")

FUNCTIONS: Final = {
    "rate": ((RANGE,), VECTOR),
    "increase": ((RANGE,), VECTOR),
    "time": ((), SCALAR),
    "sort_desc": ((VECTOR,), VECTOR),
    "histogram_quantile": ((SCALAR, VECTOR), VECTOR),
}
AGGREGATIONS: Final = {"sum": (VECTOR,), "max": (VECTOR,), "topk": (SCALAR, VECTOR)}


class NotPromql(Exception):
    """Says where it stops to be."""


class Found(NamedTuple):
    kind: str
    labels: frozenset[str] = frozenset()


class Expression:
    """`labels_of` tells which labels the series of a name have, and None when there is no such name."""

    def __init__(self, text: str, labels_of: Callable[[str], Iterable[str] | None]) -> None:
        """Raises NotPromql."""
        self._text = text
        self._labels_of = labels_of
        self._tokens = list(_tokens(text))
        self._at = 0
        self.found = self._binary(0)
        if self._at < len(self._tokens):
            raise self._wrong("expected nothing more")

    def _wrong(self, why: str) -> NotPromql:
        rest = " ".join(text for _, text in self._tokens[self._at :])
        return NotPromql(f"{self._text}: {why}, at: {rest or 'the end'}")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _take(self, *wanted: str) -> str | None:
        """Takes the next if it is one of these."""
        kind, text = self._peek()
        if kind != "text" and text in wanted:
            self._at += 1
            return text
        return None

    def _expect(self, *wanted: str) -> None:
        if self._take(*wanted) is None:
            raise self._wrong(f"expected {' or '.join(wanted)}")

    def _kind(self, kind: str) -> str:
        if self._peek()[0] != kind:
            raise self._wrong(f"expected a {kind}")
        self._at += 1
        return self._tokens[self._at - 1][1]

    # Operators

    def _binary(self, level: int) -> Found:
        if level == len(LEVELS):
            return self._range()
        left = self._binary(level + 1)
        while operator := self._take(*LEVELS[level]):
            is_bool = operator in COMPARING and self._take("bool") is not None
            left = self._joined(operator, left, self._binary(level + 1), is_bool)
        return left

    def _joined(self, operator: str, left: Found, right: Found, is_bool: bool) -> Found:
        kinds = {left.kind, right.kind}
        if RANGE in kinds:
            raise self._wrong(f"{operator} takes no ranges")
        if kinds == {SCALAR}:
            if operator in SETS or (operator in COMPARING and not is_bool):
                raise self._wrong(f"{operator} takes no two scalars")
            return left
        if kinds == {VECTOR}:
            if left.labels != right.labels:
                raise self._wrong(f"{operator} finds no pairs: {sorted(left.labels)} and {sorted(right.labels)}")
            return left
        if operator in SETS:
            raise self._wrong(f"{operator} takes vectors only")
        return left if left.kind == VECTOR else right

    # Operands

    def _range(self) -> Found:
        found = self._operand()
        if not self._take("["):
            return found
        if found.kind != VECTOR or self._tokens[self._at - 2][1] == ")":
            raise self._wrong("a range of what is no series")
        self._kind("duration")
        self._expect("]")
        return Found(RANGE, found.labels)

    def _operand(self) -> Found:
        if self._take("("):
            found = self._binary(0)
            self._expect(")")
            return found
        if self._take("-"):
            return self._range()
        if self._peek()[0] == "number":
            self._at += 1
            return Found(SCALAR)
        name = self._kind("name")
        if name in AGGREGATIONS:
            return self._aggregated(name)
        if name in FUNCTIONS:
            return self._called(name)
        return self._selected(name)

    def _arguments(self, name: str, kinds: tuple[str, ...]) -> list[Found]:
        self._expect("(")
        given = []
        for index, kind in enumerate(kinds):
            if index:
                self._expect(",")
            given.append(self._binary(0))
            if given[-1].kind != kind:
                raise self._wrong(f"{name} takes a {kind}, and got a {given[-1].kind}")
        self._expect(")")
        return given

    def _called(self, name: str) -> Found:
        kinds, result = FUNCTIONS[name]
        given = self._arguments(name, kinds)
        labels = given[-1].labels if given else frozenset()
        if name == "histogram_quantile":
            if "le" not in labels:
                raise self._wrong("histogram_quantile needs the label le")
            labels -= {"le"}
        return Found(result, labels)

    def _aggregated(self, name: str) -> Found:
        by = self._names() if self._take("by") else None
        found = self._arguments(name, AGGREGATIONS[name])[-1]
        if by is None and self._take("by"):
            by = self._names()
        if unknown := (by or frozenset()) - found.labels:
            raise self._wrong(f"{name} by labels that are not there: {sorted(unknown)}")
        return found if name == "topk" else Found(VECTOR, by or frozenset())

    def _names(self) -> frozenset[str]:
        self._expect("(")
        names = [self._kind("name")]
        while self._take(","):
            names.append(self._kind("name"))
        self._expect(")")
        return frozenset(names)

    def _selected(self, name: str) -> Found:
        known = self._labels_of(name)
        if known is None:
            raise self._wrong(f"there is neither a series nor a function {name}")
        labels = frozenset(known)
        if self._take("{"):
            while True:
                label = self._kind("name")
                if label not in labels:
                    raise self._wrong(f"{name} has no label {label}")
                self._expect("=", "!=", "=~", "!~")
                self._kind("text")
                if not self._take(","):
                    break
            self._expect("}")
        return Found(VECTOR, labels)


def _tokens(text: str) -> Iterable[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = TOKEN.match(text, at)
        if found is None:
            raise NotPromql(f"{text}: cannot be read from here on: {text[at:]}")
        at = found.end()
        yield str(found.lastgroup), found[str(found.lastgroup)]
