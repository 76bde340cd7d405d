"""Where in a file something stands: what parses TOML tells that of mistakes in the TOML itself, and of nothing else."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from typing import Any, Final

Place = tuple[str | int, ...]
"""Keys, and numbers of what stands in arrays."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def toml_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else toml_text(key)


def toml_text(text: str) -> str:
    """Returns a string of TOML, in which nothing is left that is not shown as it is."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def shown(place: Place) -> str:
    """Returns it as one says it: `topics.orders.partitions`, `acls no. 3: principal`."""
    text, glue = "", ""
    for part in place:
        text += f" no. {part + 1}" if isinstance(part, int) else glue + toml_key(part)
        glue = ": " if isinstance(part, int) else "."
    return text


def line_of(text: str, place: Place) -> int | None:
    """Returns the line in which the place begins, or what it is in. Looks at each line alone: a line of a long string
    that looks like a table misleads it."""
    wanted = _parts(place)
    best, found = 0, None
    table: Place = ()
    seen: Counter[Place] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        keys, is_table, is_array = _keys_of(line)
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


def _parts(place: Place) -> Place:
    """Keys with dots in them and keys with dots between them are the same here."""
    return tuple(part for each in place for part in (each.split(".") if isinstance(each, str) else [each]))


def _keys_of(line: str) -> tuple[Place, bool, bool]:
    """Returns the keys that a line begins with, whether they are a table's, and whether that is one of an array."""
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
    return _parts(tuple(keys)), is_table, isinstance(value, list)
