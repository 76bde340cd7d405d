"""A parser for the subset of PromQL that the dashboard and the alerts use. It checks types and labels.

Unknown functions are rejected: add a function to the table before its first use.
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
"""Operators by precedence, lowest first."""
COMPARISONS: Final = LEVELS[2]
SET_OPERATORS: Final = ("or", "and", "unless")

FUNCTIONS: Final = {
    "rate": ((RANGE,), VECTOR),
    "increase": ((RANGE,), VECTOR),
    "time": ((), SCALAR),
    "sort_desc": ((VECTOR,), VECTOR),
    "histogram_quantile": ((SCALAR, VECTOR), VECTOR),
}
AGGREGATIONS: Final = {"sum": (VECTOR,), "max": (VECTOR,), "topk": (SCALAR, VECTOR)}


class PromqlError(Exception):
    """A syntax or type error in a PromQL expression."""


class ExpressionType(NamedTuple):
    kind: str
    labels: frozenset[str] = frozenset()


class Expression:
    """A parsed expression. `labels_of` returns the labels of a series by name, or None if there is no such series."""

    def __init__(self, text: str, labels_of: Callable[[str], Iterable[str] | None]) -> None:
        """Parse an expression. Raise PromqlError if it is invalid."""
        self._text = text
        self._labels_of = labels_of
        self._token_list = list(_tokenize(text))
        self._at = 0
        self.type = self._parse_binary(0)
        if self._at < len(self._token_list):
            raise self._error("expected the end")

    def _error(self, why: str) -> PromqlError:
        rest = " ".join(text for _, text in self._token_list[self._at :])
        return PromqlError(f"{self._text}: {why}, at: {rest or 'the end'}")

    def _peek(self) -> tuple[str, str]:
        return self._token_list[self._at] if self._at < len(self._token_list) else ("end", "")

    def _take(self, *wanted: str) -> str | None:
        """Consume the next token if it is one of these."""
        kind, text = self._peek()
        if kind != "text" and text in wanted:
            self._at += 1
            return text
        return None

    def _expect(self, *wanted: str) -> None:
        if self._take(*wanted) is None:
            raise self._error(f"expected {' or '.join(wanted)}")

    def _kind(self, kind: str) -> str:
        if self._peek()[0] != kind:
            raise self._error(f"expected a {kind}")
        self._at += 1
        return self._token_list[self._at - 1][1]

    # Operators

    def _parse_binary(self, level: int) -> ExpressionType:
        if level == len(LEVELS):
            return self._parse_range()
        left = self._parse_binary(level + 1)
        while operator := self._take(*LEVELS[level]):
            is_bool = operator in COMPARISONS and self._take("bool") is not None
            left = self._combine(operator, left, self._parse_binary(level + 1), is_bool)
        return left

    def _combine(self, operator: str, left: ExpressionType, right: ExpressionType, is_bool: bool) -> ExpressionType:
        kinds = {left.kind, right.kind}
        if RANGE in kinds:
            raise self._error(f"{operator} takes no ranges")
        if kinds == {SCALAR}:
            if operator in SET_OPERATORS or (operator in COMPARISONS and not is_bool):
                raise self._error(f"{operator} does not take two scalars")
            return left
        if kinds == {VECTOR}:
            if left.labels != right.labels:
                raise self._error(f"{operator} has different labels: {sorted(left.labels)} and {sorted(right.labels)}")
            return left
        if operator in SET_OPERATORS:
            raise self._error(f"{operator} takes vectors only")
        return left if left.kind == VECTOR else right

    # Operands

    def _parse_range(self) -> ExpressionType:
        found = self._parse_operand()
        if not self._take("["):
            return found
        if found.kind != VECTOR or self._token_list[self._at - 2][1] == ")":
            raise self._error("only a series can have a range")
        self._kind("duration")
        self._expect("]")
        return ExpressionType(RANGE, found.labels)

    def _parse_operand(self) -> ExpressionType:
        if self._take("("):
            found = self._parse_binary(0)
            self._expect(")")
            return found
        if self._take("-"):
            return self._parse_range()
        if self._peek()[0] == "number":
            self._at += 1
            return ExpressionType(SCALAR)
        name = self._kind("name")
        if name in AGGREGATIONS:
            return self._parse_aggregation(name)
        if name in FUNCTIONS:
            return self._parse_call(name)
        return self._parse_selector(name)

    def _parse_arguments(self, name: str, kinds: tuple[str, ...]) -> list[ExpressionType]:
        self._expect("(")
        given = []
        for index, kind in enumerate(kinds):
            if index:
                self._expect(",")
            given.append(self._parse_binary(0))
            if given[-1].kind != kind:
                raise self._error(f"{name} takes a {kind}, got a {given[-1].kind}")
        self._expect(")")
        return given

    def _parse_call(self, name: str) -> ExpressionType:
        kinds, result = FUNCTIONS[name]
        given = self._parse_arguments(name, kinds)
        labels = given[-1].labels if given else frozenset()
        if name == "histogram_quantile":
            if "le" not in labels:
                raise self._error("histogram_quantile needs the label le")
            labels -= {"le"}
        return ExpressionType(result, labels)

    def _parse_aggregation(self, name: str) -> ExpressionType:
        by = self._parse_names() if self._take("by") else None
        found = self._parse_arguments(name, AGGREGATIONS[name])[-1]
        if by is None and self._take("by"):
            by = self._parse_names()
        if unknown := (by or frozenset()) - found.labels:
            raise self._error(f"{name} by unknown labels: {sorted(unknown)}")
        return found if name == "topk" else ExpressionType(VECTOR, by or frozenset())

    def _parse_names(self) -> frozenset[str]:
        self._expect("(")
        names = [self._kind("name")]
        while self._take(","):
            names.append(self._kind("name"))
        self._expect(")")
        return frozenset(names)

    def _parse_selector(self, name: str) -> ExpressionType:
        known = self._labels_of(name)
        if known is None:
            raise self._error(f"unknown series or function {name}")
        labels = frozenset(known)
        if self._take("{"):
            while True:
                label = self._kind("name")
                if label not in labels:
                    raise self._error(f"{name} has no label {label}")
                self._expect("=", "!=", "=~", "!~")
                self._kind("text")
                if not self._take(","):
                    break
            self._expect("}")
        return ExpressionType(VECTOR, labels)


def _tokenize(text: str) -> Iterable[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = TOKEN.match(text, at)
        if found is None:
            raise PromqlError(f"{text}: unexpected character at: {text[at:]}")
        at = found.end()
        yield str(found.lastgroup), found[str(found.lastgroup)]
