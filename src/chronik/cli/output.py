"""Command output: aligned tables for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from chronik.escaping import escape, to_json_text
from chronik.ids import format_id
from chronik.protocol.schema import Struct

Cell = str | int | None


def format_table(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Format rows as aligned columns. Integers are right-aligned; empty cells contain a dash."""
    rows = [list(row) for row in rows]
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *texts, strict=True)]
    is_numeric = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(headings))]
    lines = []
    for line in (headings, *texts):
        aligned = zip(line, widths, is_numeric, strict=True)
        cells = [text.rjust(width) if right else text.ljust(width) for text, width, right in aligned]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _text(cell: Cell) -> str:
    return "-" if cell is None or cell == "" else escape(str(cell))


def print_json(value: Any) -> None:
    print(to_json_text(value, indent=2))


def join_ids(values: Iterable[int]) -> str:
    """Join broker or replica ids with commas: `1, 2, 3`."""
    return ", ".join(map(str, values))


def format_ranges(values: Iterable[int]) -> str:
    """Format ascending partition indexes as ranges: `0-49` or `0-2, 5`."""
    found: list[list[int]] = []
    for value in values:
        if found and value == found[-1][-1] + 1:
            found[-1][1:] = [value]
        else:
            found.append([value])
    return ", ".join("-".join(map(str, ends)) for ends in found)


def message_to_json(message: Struct, version: int) -> dict[str, Any]:
    """Return the fields of a protocol message in a given version as JSON values.

    Ids are encoded in Kafka's Base64 form.
    """
    return {
        field.name: _value_to_json(getattr(message, field.name), version)
        for field in message.__schema__.fields
        if field.versions.covers(version)
    }


def _value_to_json(value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return message_to_json(value, version)
    if isinstance(value, list):
        return [_value_to_json(each, version) for each in value]
    return format_id(value) if isinstance(value, bytes) else value
