"""Validation of TOML values: each error names the file, the line and the key."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from chronik.cli.apply.toml_paths import TomlPath, find_line, format_path
from chronik.config import VALUE_CHARACTERS_MAX
from chronik.errors import ConfigError
from chronik.escaping import truncate_text
from chronik.wording import spelling_suggestion


class TomlValidator:
    """A validator for the values of a TOML document; its methods raise ConfigError."""

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
            raise self.unexpected_value(place, value, "a table")
        if known is not None:
            self.reject_unknown_keys(place, value, known)
        return value

    def reject_unknown_keys(self, place: TomlPath, table: Mapping[str, Any], known: Collection[str]) -> None:
        for key, value in table.items():
            if key not in known:
                quotes = "; names with dots must be quoted" if isinstance(value, dict) and place else ""
                hint = spelling_suggestion(key, known) or f"; expected one of {', '.join(known)}"
                raise self.error_at((*place, key), f"unknown key{hint}{quotes}")

    def require_tables(self, place: TomlPath, value: Any) -> Iterator[tuple[TomlPath, Any]]:
        if not isinstance(value, list):
            raise self.unexpected_value(place, value, f"an array of tables: [[{place[-1]}]]")
        return (((*place, number), each) for number, each in enumerate(value))

    def require_string(self, place: TomlPath, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise self.unexpected_value(place, value, "a string")
        return value

    def require_int(self, place: TomlPath, value: Any, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.unexpected_value(place, value, f"an integer from {low} to {high}")
        return value

    def require_choice(self, place: TomlPath, value: Any, choices: Collection[str]) -> str:
        if not isinstance(value, str) or value not in choices:
            raise self.unexpected_value(place, value, " or ".join(f'"{choice}"' for choice in choices))
        return value

    def require_choices(self, place: TomlPath, value: Any, choices: Collection[str]) -> list[str]:
        if not isinstance(value, list):
            raise self.unexpected_value(place, value, f"an array of {', '.join(choices)}")
        return [self.require_choice(place, each, choices) for each in value]

    # Errors

    def error_at(self, place: TomlPath, message: str) -> ConfigError:
        return ConfigError(f"{self._location(place)}: {message}")

    def unexpected_value(self, place: TomlPath, value: Any, expected: str) -> ConfigError:
        """Return an error for an unexpected value. Values in `users` are omitted, because they may be passwords."""
        given = "" if "users" in place[:1] else f" = {truncate_text(repr(value), VALUE_CHARACTERS_MAX)}"
        return ConfigError(f"{self._location(place)}{given}: expected {expected}")

    def _location(self, place: TomlPath) -> str:
        line = find_line(self._text, place)
        return f"{self._name}{'' if line is None else f':{line}'}: {format_path(place)}"
