"""Values of a TOML document: their paths, their line numbers, which tomllib does not report, and their validation.

Each error names the file, the line and the key.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from chronik.config import VALUE_CHARACTERS_MAX
from chronik.errors import ConfigError
from chronik.escaping import truncate_text
from chronik.wording import format_spelling_suggestion

TomlPath = tuple[str | int, ...]
"""The path of a value in a TOML document: keys and array indexes."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def format_toml_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else format_toml_string(key)


def format_toml_string(text: str) -> str:
    """Format a TOML basic string. Escape quotes, backslashes and non-printable characters."""
    return '"' + "".join(map(_escape_character, text)) + '"'


def _escape_character(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def format_path(place: TomlPath) -> str:
    """Format a path for an error message: `topics.orders.partitions`, `acls no. 3: principal`."""
    text, glue = "", ""
    for part in place:
        text += f" no. {part + 1}" if isinstance(part, int) else glue + format_toml_key(part)
        glue = ": " if isinstance(part, int) else "."
    return text


def find_line_number(text: str, place: TomlPath) -> int | None:
    """Return the line number of a value in a TOML document or, if not found, of its closest parent.

    Each line is parsed on its own, so a line of a multi-line string that looks like a table header misleads it.
    """
    wanted = _split_dotted_keys(place)
    best, found = 0, None
    table: TomlPath = ()
    seen: Counter[TomlPath] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        keys, is_table, is_array = _parse_line_keys(line)
        if not keys:
            continue
        here = (*(() if is_table else table), *keys)
        if is_array:
            here = (*keys, seen[keys])
            seen[keys] += 1
        if is_table:
            table = here
        common = min(len(here), len(wanted))
        if common > best and here[:common] == wanted[:common]:
            best, found = common, number
    return found


def _split_dotted_keys(place: TomlPath) -> TomlPath:
    """Split a TOML path at the dots of its keys, so that dotted and quoted keys compare as equal."""
    return tuple(part for each in place for part in (each.split(".") if isinstance(each, str) else [each]))


def _parse_line_keys(line: str) -> tuple[TomlPath, bool, bool]:
    """Return the TOML keys at the start of a line, and whether the line is a table header."""
    line = line.strip()
    is_table = line.startswith("[")
    try:
        value: Any = tomllib.loads(line if is_table else f"{line.partition('=')[0]}= 0")
    except ValueError:
        return (), False, False
    keys: list[str] = []
    while isinstance(value, dict) and value:
        ((key, value),) = value.items()
        keys.append(key)
    return _split_dotted_keys(tuple(keys)), is_table, isinstance(value, list)


class TomlValidator:
    """A validator for the values of a TOML document, which raises ConfigError for invalid ones."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name

    def parse(self) -> dict[str, Any]:
        try:
            found = tomllib.loads(self._text)
            repr(found)  # raises ValueError for integers that are too long to print
            return found
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{self._name}: not valid TOML: {error}") from None
        except ValueError:
            raise ConfigError(f"{self._name}: not valid TOML: an integer has thousands of digits") from None

    def require_table(self, place: TomlPath, value: Any, known: Collection[str] | None = None) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.build_unexpected_value_error(place, value, "a table")
        if known is not None:
            self.reject_unknown_keys(place, value, known)
        return value

    def reject_unknown_keys(self, place: TomlPath, table: Mapping[str, Any], known: Collection[str]) -> None:
        for key, value in table.items():
            if key not in known:
                quotes = "; names with dots must be quoted" if isinstance(value, dict) and place else ""
                hint = format_spelling_suggestion(key, known) or f"; expected one of {', '.join(known)}"
                raise self.build_validation_error((*place, key), f"unknown key{hint}{quotes}")

    def require_tables(self, place: TomlPath, value: Any) -> Iterator[tuple[TomlPath, Any]]:
        if not isinstance(value, list):
            raise self.build_unexpected_value_error(place, value, f"an array of tables: [[{place[-1]}]]")
        return (((*place, number), each) for number, each in enumerate(value))

    def require_string(self, place: TomlPath, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise self.build_unexpected_value_error(place, value, "a string")
        return value

    def require_int(self, place: TomlPath, value: Any, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.build_unexpected_value_error(place, value, f"an integer from {low} to {high}")
        return value

    def require_choice(self, place: TomlPath, value: Any, choices: Collection[str]) -> str:
        if not isinstance(value, str) or value not in choices:
            raise self.build_unexpected_value_error(place, value, " or ".join(f'"{choice}"' for choice in choices))
        return value

    def require_choices(self, place: TomlPath, value: Any, choices: Collection[str]) -> list[str]:
        if not isinstance(value, list):
            raise self.build_unexpected_value_error(place, value, f"an array of {', '.join(choices)}")
        return [self.require_choice(place, each, choices) for each in value]

    # Errors

    def build_validation_error(self, place: TomlPath, message: str) -> ConfigError:
        return ConfigError(f"{self._format_location(place)}: {message}")

    def build_unexpected_value_error(self, place: TomlPath, value: Any, expected: str) -> ConfigError:
        """Return an error for an unexpected value in a TOML document.

        Values in `users` are not quoted, because they may be passwords.
        """
        given = "" if "users" in place[:1] else f" = {truncate_text(repr(value), VALUE_CHARACTERS_MAX)}"
        return ConfigError(f"{self._format_location(place)}{given}: expected {expected}")

    def _format_location(self, place: TomlPath) -> str:
        line = find_line_number(self._text, place)
        return f"{self._name}{'' if line is None else f':{line}'}: {format_path(place)}"
