"""Size-limited text and JSON representations of a table's columns and rows, for display.

Sample rows are read from the files with the newest offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa

from chronik.errors import ChronikError
from chronik.escaping import truncate_text
from chronik.limits import SAMPLE_BYTES_MAX
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.storage import table_uri
from chronik.pipeline.tables.table_files import TableFiles, scan
from chronik.pipeline.tables.topic_table import TableMismatchError
from chronik.pipeline_journal import ColumnInfo, TableSample

NAME_CHARACTERS_MAX, TYPE_CHARACTERS_MAX = 256, 1000
"""Maximum lengths of column names and types in characters; both come from fields of user records."""

SQL_TYPE_NAMES = {
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

ROWS_MAX = 20
FILES_READ_MAX = 5
"""Maximum number of files that a sample of rows reads. Each file may have only one row."""


def describe_columns(schema: pa.Schema) -> tuple[ColumnInfo, ...]:
    """Return the columns of a table with their SQL types."""
    return tuple(
        ColumnInfo(
            truncate_text(field.name, NAME_CHARACTERS_MAX),
            truncate_text(get_sql_type_name(field.type), TYPE_CHARACTERS_MAX),
        )
        for field in schema
    )


def get_sql_type_name(kind: pa.DataType) -> str:
    """Return the name of a type in Spark SQL."""
    is_a: Any = pa.types
    if is_a.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return f"struct<{', '.join(f'{each.name}: {get_sql_type_name(each.type)}' for each in fields)}>"
    if is_a.is_map(kind):
        return f"map<{get_sql_type_name(kind.key_type)}, {get_sql_type_name(kind.item_type)}>"
    if is_a.is_list(kind) or is_a.is_large_list(kind):
        return f"array<{get_sql_type_name(kind.value_type)}>"
    if is_a.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if is_a.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return SQL_TYPE_NAMES.get(kind, str(kind))


CELL_CHARACTERS_MAX = 256
SAMPLE_SIZES = tuple(
    (columns, characters) for columns in (100, 20, 4, 1) for characters in (CELL_CHARACTERS_MAX, 64, 16)
)
"""Limits for the columns of a sample and the characters per cell, tried in order until the encoded rows fit."""


def encode_sample(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Encode rows as JSON of at most SAMPLE_BYTES_MAX bytes, with as many columns and characters as fit."""
    encoded = b""
    for columns_max, characters_max in SAMPLE_SIZES:
        shown_names = names[:columns_max]
        cells = [[format_cell(row[name], characters_max) for name in shown_names] for row in rows]
        headings = [shorten_text(name, NAME_CHARACTERS_MAX) for name in shown_names]
        encoded = msgspec.json.encode(TableSample(headings, cells, len(names) - len(shown_names)))
        if len(encoded) <= SAMPLE_BYTES_MAX:
            break
    return encoded


def encode_sample_error(reason: str) -> bytes:
    """Encode an error message as JSON, to be sent instead of sample rows."""
    return msgspec.json.encode(TableSample(error=shorten_text(reason, 1000)))


def format_cell(value: Any, characters_max: int = CELL_CHARACTERS_MAX) -> str | None:
    """Format a value as text for display. Bytes are decoded as UTF-8 if they are valid."""
    if value is None or isinstance(value, str):
        text = value
    elif isinstance(value, bytes):
        text = _decode_text(value, characters_max)
    elif isinstance(value, list | dict | tuple):
        text = json.dumps(value, ensure_ascii=False, default=format_cell)
    elif isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = value.isoformat() if isinstance(value, date) else str(value)
    return None if text is None else shorten_text(text, characters_max)


def shorten_text(text: str, characters_max: int) -> str:
    """Return the text, shortened with an ellipsis if it is too long."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def _decode_text(value: bytes, characters_max: int) -> str:
    """Decode bytes as UTF-8, or as hex if invalid; bytes beyond the displayed length are not read."""
    head = value[: 4 * (characters_max + 1)]
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        if error.end == len(head) < len(value) and error.start > len(head) - 4:  # truncated within a character
            return head[: error.start].decode()
    return f"0x{head.hex()}"


def read_sample_rows_as_json(
    root: str, topic: str, rows: int, storage_options: Mapping[str, str] | None = None
) -> bytes:
    """Return sample rows of a topic's table as JSON. Table errors are returned as JSON, not raised."""
    uri = table_uri(root, topic)
    try:
        table = open_table(uri, storage_options)
        if table.spec.topic != topic:  # also rejects names with path components
            raise TableMismatchError(f"{uri} is not the table of topic {topic}")
        files = table.files()
        return encode_sample(files.schema.names, read_newest_rows(files, min(max(1, rows), ROWS_MAX)))
    except (ChronikError, OSError, pa.ArrowException) as error:
        return encode_sample_error(str(error).partition("\n")[0] or type(error).__name__)


def read_newest_rows(table: TableFiles, count: int) -> list[dict[str, Any]]:
    """Read up to `count` rows from the start of the newest files."""
    found: list[dict[str, Any]] = []
    newest = sorted(table.files, key=lambda file: file.offsets[1], reverse=True)
    for file in newest[:FILES_READ_MAX]:
        batches = scan(table.with_files(file), batch_rows=count)
        for batch in islice(batches, count):
            found += batch.slice(0, count - len(found)).to_pylist()
            if len(found) >= count:
                return found
    return found
