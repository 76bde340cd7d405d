"""Rows of a query as text: a table for people, JSON lines or CSV for programs. Written as they come.

Bytes that are text are written as text, others in Base64, as `consume --json` does it. The times of a row are UTC.
"""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import islice
from typing import Any, TextIO

from chronik.cli.output import table
from chronik.shown import json_text, unescaped

CELL_CHARACTERS_MAX = 60
"""The longest cell of a table: a few columns next to each other still fit on a screen."""

ROWS_PER_FLUSH = 1000


def write_json(names: Sequence[str], rows: Iterable[Sequence[Any]], out: TextIO) -> None:
    """Writes a line for each row."""
    for portion in _portions(rows):
        for row in portion:
            fields = dict(zip(names, map(_to_json, row), strict=True))
            out.write(json_text(fields, allow_nan=False, default=str) + "\n")
        out.flush()


def write_csv(names: Sequence[str], rows: Iterable[Sequence[Any]], out: TextIO) -> None:
    """Writes a line of headings first; what is null is empty."""
    out = out if out.isatty() else unescaped(out)  # a program wants every byte, a terminal must not get them
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for portion in _portions(rows):
        writer.writerows([_to_csv(value) for value in row] for row in portion)
        out.flush()


def write_table(names: Sequence[str], rows: Iterable[Sequence[Any]], out: TextIO, rows_max: int) -> bool:
    """Says whether all rows are in it."""
    shown = list(islice(rows, rows_max + 1))
    if names:
        out.write(table(names, [[_to_cell(value) for value in row] for row in shown[:rows_max]]) + "\n")
        out.flush()
    return len(shown) <= rows_max


def _portions(rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    iterator = iter(rows)
    while portion := list(islice(iterator, ROWS_PER_FLUSH)):
        yield portion


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return _text_of(bytes(value))
    if isinstance(value, datetime):
        return _time_text(value)
    if isinstance(value, float) and value - value != 0:
        return str(value)  # JSON has no word for them
    if hasattr(value, "asDict"):
        return {name: _to_json(each) for name, each in zip(value.__fields__, value, strict=True)}
    if isinstance(value, Mapping):
        return {str(_to_json(name)): _to_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(each) for each in value]
    return value


def _to_csv(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    found = _to_json(value)
    return json.dumps(found, ensure_ascii=False, default=str) if isinstance(found, dict | list) else found


def _to_cell(value: Any) -> str | int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    text = " ".join(str(_to_csv(value)).split())
    return text if len(text) <= CELL_CHARACTERS_MAX else f"{text[: CELL_CHARACTERS_MAX - 1]}…"


def _text_of(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _time_text(value: datetime | date) -> str:
    text = value.isoformat()
    return text if isinstance(value, datetime) and value.tzinfo is not None else f"{text}Z"
