"""Output formats for query results: a table for people, JSON lines or CSV for programs.

Rows are written incrementally. Bytes are written as text if they are valid UTF-8, otherwise in Base64, as in
`consume --json`. Timestamps are UTC.
"""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from itertools import islice
from typing import Any, TextIO

from chronik.cli.output import format_table
from chronik.escaping import raw_stream, to_json_text

CELL_CHARACTERS_MAX = 60
"""Maximum number of characters in a table cell, so that several columns fit on a screen."""

ROWS_PER_FLUSH = 1000


def write_json(names: Sequence[str], rows: Iterable[Sequence[Any]], out: TextIO) -> None:
    """Write query result rows as JSON, one row per line."""
    for chunk in _split_into_chunks(rows):
        for row in chunk:
            fields = dict(zip(names, map(_to_json, row), strict=True))
            out.write(to_json_text(fields, allow_nan=False, default=str) + "\n")
        out.flush()


def write_csv(names: Sequence[str], rows: Iterable[Sequence[Any]], out: TextIO) -> None:
    """Write query result rows as CSV with a header line; null values are empty."""
    out = out if out.isatty() else raw_stream(out)  # escape control characters for terminals only
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for chunk in _split_into_chunks(rows):
        writer.writerows([_to_csv(value) for value in row] for row in chunk)
        out.flush()


def write_table(names: Sequence[str], rows: Iterable[Sequence[Any]], out: TextIO, rows_max: int) -> bool:
    """Write at most `rows_max` rows as a text table, and return whether all rows were written."""
    shown = list(islice(rows, rows_max + 1))
    if names:
        out.write(
            format_table(names, [[_format_cell_value(value) for value in row] for row in shown[:rows_max]]) + "\n"
        )
        out.flush()
    return len(shown) <= rows_max


def _split_into_chunks(rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    iterator = iter(rows)
    while chunk := list(islice(iterator, ROWS_PER_FLUSH)):
        yield chunk


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return _decode_or_base64(bytes(value))
    if isinstance(value, datetime):
        return _format_time(value)
    if isinstance(value, float) and value - value != 0:
        return str(value)  # JSON cannot represent NaN and infinity
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


def _format_cell_value(value: Any) -> str | int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    text = " ".join(str(_to_csv(value)).split())
    return text if len(text) <= CELL_CHARACTERS_MAX else f"{text[: CELL_CHARACTERS_MAX - 1]}…"


def _decode_or_base64(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _format_time(value: datetime | date) -> str:
    text = value.isoformat()
    return text if isinstance(value, datetime) and value.tzinfo is not None else f"{text}Z"
