"""Names of columns and nested fields, and how fields get one whose own name a table cannot have."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from chronik.pipeline.tables.layout import RESERVED_NAMES

NAME_CHARACTERS_MAX: Final = 255

FORBIDDEN_CHARACTERS: Final = frozenset(" ,;{}()\n\t=`.")
"""Characters that are not allowed in a column name.

Delta rejects the first nine without column mapping. Dots and backticks need quoting in every query, and some readers
interpret a dot as a path into a struct.
"""

PATH_KEY: Final = b"chronik.path"
"""Key of the field metadata with the JSON path from which the field is read, unless it is the field's name."""


def find_name_problem(name: str, taken: Iterable[str], reserved: frozenset[str] = frozenset()) -> str | None:
    """Return the reason why a name is not valid for a column or a nested field, or None."""
    lower_name = name.casefold()
    if lower_name in reserved:
        return "the name is reserved"
    for other in taken:
        if other.casefold() == lower_name:
            return f"the name differs from column {other!r} only in case" if other != name else "the name is used twice"
    if not name or len(name) > NAME_CHARACTERS_MAX or FORBIDDEN_CHARACTERS & set(name) or not name.isprintable():
        return "the name is not a valid column name"
    return None


def choose_column_name(source: str, taken: Iterable[str], reserved: frozenset[str] = RESERVED_NAMES) -> str:
    """Choose a valid column name for a JSON field: the field's own name if possible.

    Otherwise, characters that are not allowed become `_`, and a name that is reserved or taken (also if it differs only
    in case) gets the first free suffix from `_2` on.
    """
    replaced = "".join("_" if each in FORBIDDEN_CHARACTERS or not each.isprintable() else each for each in source)
    name = base = replaced[:NAME_CHARACTERS_MAX] or "_"
    used = {each.casefold() for each in taken} | reserved
    number = 1
    while name.casefold() in used:
        number += 1
        suffix = f"_{number}"
        name = base[: NAME_CHARACTERS_MAX - len(suffix)] + suffix
    return name


def get_json_key(field: pa.Field) -> str:
    """Return the key of the JSON object from which a nested field is read."""
    metadata = field.metadata or {}
    return str(json.loads(metadata[PATH_KEY])[0]) if PATH_KEY in metadata else field.name


def with_json_key(field: pa.Field, source: str) -> pa.Field:
    """Return a copy of a nested field that is read from the JSON key `source` instead of its own name."""
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != PATH_KEY}
    if field.name != source:
        metadata[PATH_KEY] = json.dumps([source]).encode()
    return field.with_metadata(metadata or None)
