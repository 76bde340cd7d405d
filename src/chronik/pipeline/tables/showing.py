"""Columns and rows of a table, as people are shown them: in words, and never too many of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import msgspec
import pyarrow as pa

from chronik.limits import SAMPLE_BYTES_MAX
from chronik.pipeline.journal.reporting import Column
from chronik.shown import shortened

NAME_CHARACTERS_MAX, TYPE_CHARACTERS_MAX = 256, 1000
"""Names are those of fields in people's records, and types have names in them."""

SQL_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date32(): "date",
}


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    return tuple(
        Column(shortened(field.name, NAME_CHARACTERS_MAX), shortened(sql_name(field.type), TYPE_CHARACTERS_MAX))
        for field in schema
    )


def sql_name(kind: pa.DataType) -> str:
    """Returns what Spark's SQL calls it, which is where people write it."""
    is_a: Any = pa.types
    if is_a.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return f"struct<{', '.join(f'{each.name}: {sql_name(each.type)}' for each in fields)}>"
    if is_a.is_map(kind):
        return f"map<{sql_name(kind.key_type)}, {sql_name(kind.item_type)}>"
    if is_a.is_list(kind) or is_a.is_large_list(kind):
        return f"array<{sql_name(kind.value_type)}>"
    if is_a.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if is_a.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return SQL_NAMES.get(kind, str(kind))


class Rows(msgspec.Struct, omit_defaults=True):
    """What a driver answers who was asked for rows. Fields are only ever added, with defaults."""

    columns: list[str] = []
    rows: list[list[str | None]] = []
    columns_left_out: int = 0
    error: str | None = None
    """Why there are none."""


CELL_CHARACTERS_MAX = 256
SIZES = tuple((columns, characters) for columns in (100, 20, 4, 1) for characters in (CELL_CHARACTERS_MAX, 64, 16))
"""Columns, and characters of a cell: what is too long is shown by the next, narrower."""


def rows_told(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Returns them as JSON of at most SAMPLE_BYTES_MAX, with as many columns, and as much of each, as have room."""
    told = b""
    for columns_max, characters_max in SIZES:
        shown = names[:columns_max]
        cells = [[cell(row[name], characters_max) for name in shown] for row in rows]
        headings = [cut(name, NAME_CHARACTERS_MAX) for name in shown]
        told = msgspec.json.encode(Rows(headings, cells, len(names) - len(shown)))
        if len(told) <= SAMPLE_BYTES_MAX:
            break
    return told


def refusal_told(why: str) -> bytes:
    return msgspec.json.encode(Rows(error=cut(why, 1000)))


def cell(value: Any, characters_max: int = CELL_CHARACTERS_MAX) -> str | None:
    """Returns a value as text. Bytes that are text are shown as such: keys and values of raw topics mostly are."""
    if value is None or isinstance(value, str):
        text = value
    elif isinstance(value, bytes):
        text = _text_of(value, characters_max)
    elif isinstance(value, list | dict | tuple):
        text = json.dumps(value, ensure_ascii=False, default=cell)
    elif isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = value.isoformat() if isinstance(value, date) else str(value)
    return None if text is None else cut(text, characters_max)


def cut(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def _text_of(value: bytes, characters_max: int) -> str:
    """Looks at no more of it than is shown: it may have megabytes."""
    head = value[: 4 * (characters_max + 1)]
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        if error.end == len(head) < len(value) and error.start > len(head) - 4:  # cut within a character
            return head[: error.start].decode()
    return f"0x{head.hex()}"
