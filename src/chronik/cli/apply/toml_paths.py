"""Paths to values in a TOML document, and their line numbers, which tomllib does not report."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from typing import Any, Final

TomlPath = tuple[str | int, ...]
"""Keys, and indexes of array elements."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def format_toml_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else format_toml_string(key)


def format_toml_string(text: str) -> str:
    """Returns a string of TOML, in which nothing is left that is not shown as it is."""
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


def find_line(text: str, place: TomlPath) -> int | None:
    """Return the line number of a path, or of its innermost parent that is found.

    Each line is parsed on its own, so a line of a multi-line string that looks like a table header misleads it.
    """
    wanted = _split_keys(place)
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


def _split_keys(place: TomlPath) -> TomlPath:
    """Split keys at dots, so that dotted and quoted keys compare equal."""
    return tuple(part for each in place for part in (each.split(".") if isinstance(each, str) else [each]))


def _parse_line_keys(line: str) -> tuple[TomlPath, bool, bool]:
    """Return the keys at the start of a line, and whether they name a table and an array of tables."""
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
    return _split_keys(tuple(keys)), is_table, isinstance(value, list)
