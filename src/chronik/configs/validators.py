"""Validators of config values: each returns a description of the expected value, or None if the value is valid."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from chronik.principals import Principal

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

Validator = Callable[[str], str | None]
"""A function that returns None for a valid config value, or a description of the expected value."""

_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,20}\s*")  # int() would also accept 1_000 and non-ASCII digits


class IntegerRange:
    """A validator of integers in a range. With `unlimited`, it also accepts -1 for no limit."""

    def __init__(self, low: int, high: int, *, unlimited: bool = False) -> None:
        self.low = low
        self.high = high
        self.unlimited = unlimited

    def __call__(self, value: str) -> str | None:
        if self.unlimited and value.strip() == "-1":
            return None
        otherwise = "-1, or " if self.unlimited else ""
        if not _WHOLE.fullmatch(value):
            return f"{otherwise}a whole number"
        if self.low <= int(value) <= self.high:
            return None
        return f"{otherwise}a whole number from {self.low} to {self.high}"


class Choices:
    """A validator that accepts one of the choices or, with `may_be_empty`, an empty value."""

    def __init__(self, *choices: str, may_be_empty: bool = False) -> None:
        self.choices = choices
        self.may_be_empty = may_be_empty

    def __call__(self, value: str) -> str | None:
        if value in self.choices or (self.may_be_empty and not value):
            return None
        return f"one of {', '.join(self.choices)}{', or empty' * self.may_be_empty}"


class ChoiceList:
    """A validator of comma-separated choices. As in Kafka, the list may be empty or contain duplicates."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __call__(self, value: str) -> str | None:
        given = [part.strip() for part in value.split(",")] if value.strip() else []
        return None if all(part in self.choices for part in given) else f"a list of {', '.join(self.choices)}"


def integer_in_range(low: int, high: int) -> Validator:
    """Return a validator of integers in a range."""
    return IntegerRange(low, high)


def integer_or_unlimited(low: int, high: int) -> Validator:
    """Return a validator of integers in a range, or -1 for no limit."""
    return IntegerRange(low, high, unlimited=True)


def number_in_range(low: float, high: float) -> Validator:
    """Return a validator of decimal numbers in a range."""
    expected = f"a number from {low:g} to {high:g}"

    def check(value: str) -> str | None:
        try:
            return None if low <= float(value) <= high else expected
        except ValueError:
            return expected

    return check


def one_of(*choices: str) -> Validator:
    """Return a validator that accepts one of the choices."""
    return Choices(*choices)


def one_of_or_empty(*choices: str) -> Validator:
    """Return a validator that accepts one of the choices or an empty value."""
    return Choices(*choices, may_be_empty=True)


_PARTITIONING = re.compile(r"\s*((day|hour)\([^,()]+\)|bucket\(\s*\d+\s*,[^,()]+\)|[^,()]+)\s*(,|$)")


def any_text(value: str) -> str | None:
    """Accept any text."""
    return None


def partitioning_or_empty(value: str) -> str | None:
    """Accept a table partitioning: columns, `day(NAME)`, `hour(NAME)` and `bucket(N, NAME)`, or an empty value."""
    position = 0
    while position < len(value):
        match = _PARTITIONING.match(value, position)
        if match is None:
            return "date, hour, none, or a list of NAME, day(NAME), hour(NAME) and bucket(N, NAME)"
        position = match.end()
    return None


def json_object_or_empty(value: str) -> str | None:
    """Accept a JSON object or an empty value."""
    if not value:
        return None
    try:
        return None if isinstance(json.loads(value), dict) else "a JSON object, or empty"
    except ValueError:
        return "a JSON object, or empty"


def list_of(*choices: str) -> Validator:
    """Return a validator of comma-separated choices. As in Kafka, the list may be empty or contain duplicates."""
    return ChoiceList(*choices)


def validate_throttled_replicas(value: str) -> str | None:
    """Validate a list of throttled replicas: `*`, or PARTITION:BROKER pairs."""
    given = [part.strip() for part in value.split(",")]
    legal = value.strip() == "*" or all(re.fullmatch(r"([0-9]+:[0-9]+)?", part) for part in given)
    return None if legal else "* or a list of PARTITION:BROKER"


def validate_address_counts(value: str) -> str | None:
    """Validate a list of ADDRESS:COUNT pairs. Host names are not supported."""
    parts = [part.strip() for part in value.split(",")] if value.strip() else []
    legal = all(re.fullmatch(r"(\[?[0-9a-fA-F:.]*[.:][0-9a-fA-F:.]*\]?):[0-9]{1,9}", part) for part in parts)
    return None if legal else "a list of ADDRESS:COUNT"


def accept_any_value(value: str) -> str | None:
    """Accept any value."""
    return None


def validate_boolean(value: str) -> str | None:
    """Validate a boolean."""
    return None if value.strip().lower() in ("true", "false") else "true or false"


def validate_principals(value: str) -> str | None:
    """Validate a semicolon-separated list of principals."""
    try:
        for each in filter(None, map(str.strip, value.split(";"))):
            Principal.parse(each)
    except ValueError as error:
        return f"{error}; separate several principals with ;"
    return None
