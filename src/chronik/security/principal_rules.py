"""Mapping of certificate subjects and claims of tokens to principal names, as by `ssl.principal.mapping.rules`. No I/O.

`DEFAULT` uses the whole subject. `RULE:pattern/replacement/` uses the replacement if the pattern matches the whole
subject, with `$1` for its first group; a trailing `L` or `U` converts the result to lower or upper case. The first rule
that matches applies. Patterns have RE2 syntax and run in linear time, so no subject can make them slow.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from chronik.errors import ConfigError
from chronik.escaping import truncate_text
from chronik.linear_regex import Pattern, PatternError

CONFIG_KEY: Final = "ssl.principal.mapping.rules"
CACHED_NAMES_MAX: Final = 1000
"""Maximum number of cached principal names. Clients often reconnect with the same certificate."""

_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_REFERENCE: Final = re.compile(r"\\(.)|\$([0-9]+)", re.DOTALL)


class NoMatchingRule(Exception):
    """No rule matches the subject."""


class PrincipalRules:
    """The rules that map the subject of a client certificate, or a claim of a token, to a principal name."""

    def __init__(
        self, text: str = "DEFAULT", *, key: str = f"broker: {CONFIG_KEY}", subject_kind: str = "certificate subject"
    ) -> None:
        """Parse the principal mapping rules in `text`, the value of config `key`.

        Raises:
            ConfigError: The rules are invalid.
        """
        self._rules = list(_parse_rules(text, key))
        self._key = key.removeprefix("broker: ")
        self._subject_kind = subject_kind
        self.principal_name = lru_cache(maxsize=CACHED_NAMES_MAX)(self._map_subject_to_principal_name)
        """Function that returns the principal name for a certificate subject, or raises NoMatchingRule."""

    def _map_subject_to_principal_name(self, subject: str) -> str:
        for rule in self._rules:
            name = subject if rule is None else rule.apply(subject)
            if name:
                return name
        raise NoMatchingRule(f"no rule in {self._key} matches the {self._subject_kind} {subject!r}")


class _Rule:
    """One rule of the form `RULE:pattern/replacement/`."""

    def __init__(self, expression: str, replacement: str, case: str) -> None:
        """Compile the rule; raise PatternError if its pattern is invalid."""
        self._pattern = Pattern(expression)
        self._replacement = replacement
        self._case = case

    def apply(self, subject: str) -> str | None:
        groups = self._pattern.groups(subject)
        if groups is None:
            return None
        name = _REFERENCE.sub(lambda found: self._resolve_reference(found, groups), self._replacement)
        return name.lower() if self._case == "L" else name.upper() if self._case == "U" else name

    def _resolve_reference(self, found: re.Match[str], groups: tuple[str, ...]) -> str:
        """Return the text that a reference such as `$1` refers to.

        A reference to a nonexistent group remains unchanged. Of several digits, the longest prefix that is a valid
        group number is used.
        """
        if found[1] is not None:
            return found[1]
        digits = found[2]
        for count in range(min(len(digits), 4), 0, -1):
            if int(digits[:count]) < len(groups):
                return groups[int(digits[:count])] + digits[count:]
        return found[0]


def _parse_rules(text: str, key: str) -> list[_Rule | None]:
    """Parse the rules; None stands for DEFAULT."""
    text = text.strip().removesuffix(",")
    rules: list[_Rule | None] = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise _build_config_error(
                key, text, "DEFAULT or RULE:pattern/replacement/ with an optional L or U, separated by commas"
            )
        try:
            rules.append(None if found[1] else _Rule(found[2], found[3], found[4]))
        except PatternError as error:
            raise _build_config_error(key, text, f"patterns in RE2 syntax ({found[2]!r}: {error})") from None
        position = found.end()
    if not rules:
        raise _build_config_error(key, text, "at least one rule, such as DEFAULT")
    return rules


def _build_config_error(key: str, text: str, expected: str) -> ConfigError:
    return ConfigError(f"{key} = {truncate_text(repr(text), 200)}: expected {expected}")
