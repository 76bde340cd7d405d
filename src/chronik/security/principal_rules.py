"""Who the subject of a certificate stands for, by `ssl.principal.mapping.rules`. Pure.

`DEFAULT` takes the subject as it is. `RULE:pattern/replacement/` takes the replacement if the pattern matches the whole
subject, with `$1` for what its first group matched; `L` or `U` behind it make small letters or capitals of the result.
The first rule that applies holds. Expressions are those of RE2: no subject, whoever had it signed, can make them slow.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from chronik.errors import ConfigError
from chronik.patterns import PatternError
from chronik.security.captures import Capturing
from chronik.shown import shortened

KEY: Final = "ssl.principal.mapping.rules"
REMEMBERED_MAX: Final = 1000
"""Subjects whose names are remembered: clients come back with the same ones."""

_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_REFERENCE: Final = re.compile(r"\\(.)|\$([0-9]+)", re.DOTALL)


class NoRuleApplies(Exception):
    """The subject is nobody's, by these rules."""


class PrincipalRules:
    def __init__(self, text: str = "DEFAULT") -> None:
        """Raises ConfigError."""
        self._rules = list(_parsed(text))
        self.name_of = lru_cache(maxsize=REMEMBERED_MAX)(self._name_of)
        """Returns the name of the principal. Raises NoRuleApplies."""

    def _name_of(self, subject: str) -> str:
        for rule in self._rules:
            name = subject if rule is None else rule.applied_to(subject)
            if name:
                return name
        raise NoRuleApplies(f"{KEY} has no rule for the subject {subject!r}")


class _Rule:
    def __init__(self, expression: str, replacement: str, case: str) -> None:
        """Raises PatternError."""
        self._pattern = Capturing(expression)
        self._replacement = replacement
        self._case = case

    def applied_to(self, subject: str) -> str | None:
        groups = self._pattern.groups(subject)
        if groups is None:
            return None
        name = _REFERENCE.sub(lambda found: self._referred(found, groups), self._replacement)
        return name.lower() if self._case == "L" else name.upper() if self._case == "U" else name

    def _referred(self, found: re.Match[str], groups: tuple[str, ...]) -> str:
        """A number that no group has stands for itself; of one with several digits as many count as make a group."""
        if found[1] is not None:
            return found[1]
        digits = found[2]
        for count in range(min(len(digits), 4), 0, -1):
            if int(digits[:count]) < len(groups):
                return groups[int(digits[:count])] + digits[count:]
        return found[0]


def _parsed(text: str) -> list[_Rule | None]:
    """Returns the rules; None is DEFAULT."""
    text = text.strip().removesuffix(",")
    rules: list[_Rule | None] = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise _wrong(text, "DEFAULT or RULE:pattern/replacement/ with L or U behind it, and a comma between two")
        try:
            rules.append(None if found[1] else _Rule(found[2], found[3], found[4]))
        except PatternError as error:
            raise _wrong(text, f"expressions of RE2 ({found[2]!r}: {error})") from None
        position = found.end()
    if not rules:
        raise _wrong(text, "one rule at least, such as DEFAULT")
    return rules


def _wrong(text: str, expected: str) -> ConfigError:
    return ConfigError(f"broker: {KEY} = {shortened(repr(text), 200)}: expected {expected}")
