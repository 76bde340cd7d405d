"""Conditions on messages: `$.customer.id = 7 and not header.source exists`.

A condition compares values of a record with literals. A comparison is met if at least one of the selected values meets
it; if there is none, it is not met.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple, Protocol

from chronik.console.messages.json_path import JsonPath, JsonValue, Step, parse_number
from chronik.console.messages.text_search import TextPattern, unescape_json

DEPTH_MAX: Final = 30
"""Maximum number of nested parentheses and negations."""

EXAMPLE: Final = '$.customer.id = 7, key = "a", header.source contains web'


class ConditionError(ValueError):
    """A condition is malformed."""


class ConditionFields(Protocol):
    """The fields of a record to which conditions refer."""

    @property
    def numbers(self) -> Mapping[str, int]:
        """The partition, offset and timestamp."""

    def document(self, field: str) -> bytes | None:
        """Return the key or value as JSON; None if it is null."""

    def text(self, field: str) -> str | None:
        """Return the key or value as text; None if it is null."""

    def header(self, name: str) -> list[str | None]:
        """Return the values of the headers with a name."""


class Condition(Protocol):
    """A parsed condition."""

    def is_met(self, fields: ConditionFields) -> bool:
        """Return whether a record meets the condition."""


# Operands


class _Path(NamedTuple):
    """Values in the key or value of a record."""

    field: str
    path: JsonPath

    def find(self, fields: ConditionFields) -> list[JsonValue]:
        document = fields.document(self.field)
        return [] if document is None else self.path.find(document)


class _Text(NamedTuple):
    """The whole key or value of a record as text."""

    field: str

    def find(self, fields: ConditionFields) -> list[JsonValue]:
        return [fields.text(self.field)]


class _Header(NamedTuple):
    name: str

    def find(self, fields: ConditionFields) -> list[JsonValue]:
        return list(fields.header(self.name))


class _Number(NamedTuple):
    name: str

    def find(self, fields: ConditionFields) -> list[JsonValue]:
        return [Decimal(fields.numbers[self.name])]


_Operand = _Path | _Text | _Header | _Number

NUMBERS: Final = ("partition", "offset", "timestamp")


# Conditions


class _Literal(NamedTuple):
    value: JsonValue
    text: str
    """The literal as text: a number also equals a string with this text."""


class _Comparison(NamedTuple):
    operand: _Operand
    compare: Callable[[JsonValue, _Literal], bool]
    literal: _Literal

    def is_met(self, fields: ConditionFields) -> bool:
        return any(self.compare(value, self.literal) for value in self.operand.find(fields))


class _Contains(NamedTuple):
    operand: _Operand
    pattern: TextPattern
    literal: _Literal

    def is_met(self, fields: ConditionFields) -> bool:
        return any(self._contains(value) for value in self.operand.find(fields))

    def _contains(self, value: JsonValue) -> bool:
        if isinstance(value, list):
            return any(_equals(each, self.literal) for each in value)
        return isinstance(value, str) and self.pattern.matches_text(value)


class _Exists(NamedTuple):
    operand: _Operand

    def is_met(self, fields: ConditionFields) -> bool:
        return bool(self.operand.find(fields))


class _Not(NamedTuple):
    negated: Condition

    def is_met(self, fields: ConditionFields) -> bool:
        return not self.negated.is_met(fields)


class _All(NamedTuple):
    conditions: tuple[Condition, ...]

    def is_met(self, fields: ConditionFields) -> bool:
        return all(each.is_met(fields) for each in self.conditions)


class _Any(NamedTuple):
    conditions: tuple[Condition, ...]

    def is_met(self, fields: ConditionFields) -> bool:
        return any(each.is_met(fields) for each in self.conditions)


def _equals(value: JsonValue, literal: _Literal) -> bool:
    if isinstance(value, str) and isinstance(literal.value, Decimal):
        return value == literal.text
    return type(value) is type(literal.value) and value == literal.value


def _differs(value: JsonValue, literal: _Literal) -> bool:
    return not _equals(value, literal)


def _build_order(compare: Callable[[Any, Any], bool]) -> Callable[[JsonValue, _Literal], bool]:
    """Return a comparison of numbers with numbers and of strings with strings. Headers and keys may be numbers."""

    def compare_values(value: JsonValue, literal: _Literal) -> bool:
        if isinstance(value, str) and isinstance(literal.value, Decimal):
            value = parse_number(value) if _NUMBER.fullmatch(value) else value
        if isinstance(value, (bool, list, dict)) or value is None or type(value) is not type(literal.value):
            return False
        return compare(value, literal.value)

    return compare_values


COMPARISONS: Final[dict[str, Callable[[JsonValue, _Literal], bool]]] = {
    "=": _equals,
    "==": _equals,
    "!=": _differs,
    "<": _build_order(operator.lt),
    "<=": _build_order(operator.le),
    ">": _build_order(operator.gt),
    ">=": _build_order(operator.ge),
}


# Parser

_NUMBER: Final = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,3})?")
_TOKEN: Final = re.compile(
    r"""\s*(?:
    (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<operator><=|>=|==|!=|<>|[=<>])
    |(?P<mark>[()\[\].$*])
    |(?P<word>[^\s"'=<>!()\[\].$*]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?)?)
    )""",
    re.VERBOSE,
)
"""A token. A word contains a dot only in numbers such as 1.5 and 1e-3: dots separate the steps of a path."""

_CONSTANTS: Final[dict[str, JsonValue]] = {"true": True, "false": False, "null": None}


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def parse_condition(text: str) -> Condition:
    """Parse a condition.

    Raises:
        ConditionError: The condition is malformed. The message quotes the position.
    """
    return _Parser(text).parse()


class _Parser:
    """A recursive descent parser of conditions."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_split_tokens(text))
        self._next = 0
        self._depth = 0

    def parse(self) -> Condition:
        condition = self._parse_any()
        if self._peek().kind != "end":
            raise self._build_error("and, or, or the end")
        return condition

    def _parse_any(self) -> Condition:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ConditionError(f"the condition is nested more than {DEPTH_MAX} deep")
        found = [self._parse_all()]
        while self._accept_word("or"):
            found.append(self._parse_all())
        self._depth -= 1
        return found[0] if len(found) == 1 else _Any(tuple(found))

    def _parse_all(self) -> Condition:
        found = [self._parse_negation()]
        while self._accept_word("and"):
            found.append(self._parse_negation())
        return found[0] if len(found) == 1 else _All(tuple(found))

    def _parse_negation(self) -> Condition:
        if not self._accept_word("not"):
            return self._parse_group()
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ConditionError(f"the condition is nested more than {DEPTH_MAX} deep")
        negated = self._parse_negation()
        self._depth -= 1
        return _Not(negated)

    def _parse_group(self) -> Condition:
        if not self._accept("("):
            return self._parse_comparison()
        condition = self._parse_any()
        if not self._accept(")"):
            raise self._build_error(")")
        return condition

    def _parse_comparison(self) -> Condition:
        operand = self._parse_operand()
        if self._accept_word("exists"):
            return _Exists(operand)
        if self._accept_word("contains"):
            literal = self._parse_literal()
            return _Contains(operand, TextPattern(literal.text), literal)
        token = self._peek()
        if token.kind != "operator":
            raise self._build_error("=, !=, <, <=, >, >=, contains or exists")
        self._next += 1
        return _Comparison(operand, COMPARISONS["!=" if token.text == "<>" else token.text], self._parse_literal())

    def _parse_operand(self) -> _Operand:
        token = self._take()
        match token.text if token.kind in ("mark", "word") else "":
            case "$":
                return _Path("value", JsonPath(self._parse_steps()))
            case "key" | "value":
                steps = self._parse_steps()
                return _Path(token.text, JsonPath(steps)) if steps else _Text(token.text)
            case "header" | "headers":
                steps = self._parse_steps()
                if len(steps) != 1 or not isinstance(steps[0], str):
                    raise self._build_error('the name of a header, such as header.source or header["a.b"]')
                return _Header(steps[0])
            case name if name in NUMBERS:
                return _Number(name)
        self._next -= 1
        raise self._build_error("$.field, key, value, header.name, partition, offset or timestamp")

    def _parse_steps(self) -> list[Step]:
        steps: list[Step] = []
        while True:
            if self._accept("."):
                token = self._take()
                if token.kind != "word":
                    self._next -= 1
                    raise self._build_error("the name of a field")
                steps += token.text.split(".")  # `$.a.1` has one token for a.1, which looks like a number
            elif self._accept("["):
                steps.append(self._parse_bracket())
            else:
                return steps

    def _parse_bracket(self) -> Step:
        token = self._take()
        step: Step
        if token.kind == "string":
            step = _unquote(token.text)
        elif token.text == "*":
            step = None
        elif re.fullmatch(r"-?[0-9]{1,9}", token.text):
            step = int(token.text)
        else:
            self._next -= 1
            raise self._build_error('a number, * or "name" in brackets')
        if not self._accept("]"):
            raise self._build_error("]")
        return step

    def _parse_literal(self) -> _Literal:
        token = self._take()
        if token.kind == "string":
            text = _unquote(token.text)
            return _Literal(text, text)
        if token.kind != "word":
            self._next -= 1
            raise self._build_error('a value, such as 7, "text", true or null')
        if token.text in _CONSTANTS:
            return _Literal(_CONSTANTS[token.text], token.text)
        if _NUMBER.fullmatch(token.text):
            return _Literal(parse_number(token.text), token.text)
        return _Literal(token.text, token.text)

    # Tokens

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        """Return the next token and advance, also past the end: the caller then goes back and raises an error."""
        token = self._peek()
        self._next += 1
        return token

    def _accept(self, mark: str) -> bool:
        found = self._peek().kind == "mark" and self._peek().text == mark
        self._next += found
        return found

    def _accept_word(self, word: str) -> bool:
        found = self._peek().kind == "word" and self._peek().text.lower() == word
        self._next += found
        return found

    def _build_error(self, expected: str) -> ConditionError:
        position = self._peek().position
        rest = self._text[position : position + 30]
        place = f"at {rest!r}" if rest else "at the end"
        return ConditionError(f"condition: expected {expected} {place}; example: {EXAMPLE}")


def _split_tokens(text: str) -> list[_Token]:
    found = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise ConditionError(f"condition: unexpected {text[position:].lstrip()[:30]!r}; example: {EXAMPLE}")
        found.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        position = match.end()
    return [*found, _Token("end", "", end)]


def _unquote(text: str) -> str:
    r"""Return the content of a quoted string. Besides JSON's escapes, \' stands for a quotation mark."""
    return unescape_json(text[1:-1].replace("\\'", "'"))
