"""Files of query results: CSV, JSON lines, Arrow or Parquet, which appear under their name only when complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from chronik.cli.arguments import InvalidInput
from chronik.cli.row_formats import write_csv, write_json
from chronik.errors import ChronikError
from chronik.limits import MIB

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_BYTES: Final = 64 * MIB
"""Target size in memory of a row group of a Parquet file."""


class ResultFileError(ChronikError):
    """A result that cannot be written to a file. The message names the file."""


class ResultFormat(StrEnum):
    """The format of a file with the rows of a result; the value is its suffix without the dot."""

    CSV = "csv"
    JSON_LINES = "jsonl"
    ARROW = "arrow"
    PARQUET = "parquet"


SUFFIXES: Final = {f".{each}": each for each in ResultFormat}
ALIASES: Final = {"json": ResultFormat.JSON_LINES}


def choose_format(path: Path, name: str | None) -> ResultFormat:
    """Return the format with this name, or else that of the file's suffix.

    Raises:
        InvalidInput: The format or the suffix is unknown.
    """
    if name is not None:
        found = ALIASES.get(name) or SUFFIXES.get(f".{name}")
        if found is None:
            raise InvalidInput(f"--format {name}: not a format of files; use {', '.join(ResultFormat)}")
        return found
    found = SUFFIXES.get(path.suffix.lower())
    if found is None:
        suffixes = ", ".join(SUFFIXES)
        raise InvalidInput(f"--output {path}: no format has the suffix {path.suffix or 'of this name'}; use {suffixes},"
                           " or --format")  # fmt: skip
    return found


def check_output_path(path: Path) -> None:
    """Check that a file can be created, before the query runs.

    Raises:
        InvalidInput: The path is a directory, or its directory does not exist or is not writable.
    """
    if path.is_dir():
        raise InvalidInput(f"--output {path}: is a directory")
    if not path.parent.is_dir():
        raise InvalidInput(f"--output {path}: the directory {path.parent} does not exist")
    if not os.access(path.parent, os.W_OK):
        raise InvalidInput(f"--output {path}: the directory {path.parent} is not writable")


def write_result(
    path: Path, format: ResultFormat, batches: pa.RecordBatchReader, report: Callable[[int], None] = lambda _: None
) -> int:
    """Write record batches to a file, which replaces an existing one when it is complete, and return the rows.

    Args:
        path: The file.
        format: Its format.
        batches: The rows, of which few are in memory at a time.
        report: Is called with the number of rows written so far.

    Raises:
        ResultFileError: The file cannot be written, or its format cannot store the result.
    """
    _check_columns(path, format, batches.schema.names)
    count = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in batches:
            yield batch
            count += batch.num_rows
            report(count)

    writers = {
        ResultFormat.CSV: _write_text,
        ResultFormat.JSON_LINES: _write_text,
        ResultFormat.ARROW: _write_arrow,
        ResultFormat.PARQUET: _write_parquet,
    }
    with _replace_atomically(path) as out:
        writers[format](out, format, batches.schema, counted())
    return count


def _check_columns(path: Path, format: ResultFormat, names: Sequence[str]) -> None:
    if format in (ResultFormat.PARQUET, ResultFormat.JSON_LINES):
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise ResultFileError(
                f"{path}: the result has several columns {duplicates[0]}: name them with AS, or write CSV or Arrow"
            )


@contextmanager
def _replace_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file in the same directory, which replaces the file at the end, or is deleted on errors."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except OSError as error:
        raise ResultFileError(f"{path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _write_arrow(out: IO[bytes], format: ResultFormat, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    import pyarrow as pa

    with pa.ipc.new_file(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_parquet(out: IO[bytes], format: ResultFormat, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pending: list[pa.RecordBatch] = []
    size = 0
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        for batch in batches:
            pending.append(batch)
            size += batch.nbytes
            if size >= ROW_GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(pending, schema))
                pending, size = [], 0
        if pending:
            writer.write_table(pa.Table.from_batches(pending, schema))


def _write_text(out: IO[bytes], format: ResultFormat, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    import io

    write = write_csv if format is ResultFormat.CSV else write_json
    text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=False)
    try:
        write(schema.names, _iterate_rows(schema, batches), text)
    finally:
        text.detach()  # flushes it, and leaves the file open


def _iterate_rows(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    converters = [_find_converter(field.type) for field in schema]
    for batch in batches:
        columns = [
            values.to_pylist() if convert is None else [convert(value) for value in values.to_pylist()]
            for values, convert in zip(batch.columns, converters, strict=True)
        ]
        yield from zip(*columns, strict=True) if columns else iter([()] * batch.num_rows)


def _find_converter(data_type: pa.DataType) -> Callable[[Any], Any] | None:
    """Return a function that converts values to those that `row_formats` expects, or None if they are unchanged.

    Arrow returns maps as lists of pairs. Timestamps are written in UTC, and those without time zone without zone.
    """
    import pyarrow as pa

    types: Any = pa.types
    if types.is_timestamp(data_type):
        zone = "" if data_type.tz is None else "Z"
        return lambda value: value and _to_utc(value).isoformat() + zone
    if types.is_map(data_type):
        convert = _find_converter(data_type.item_type) or (lambda value: value)
        return lambda value: None if value is None else {name: convert(each) for name, each in value}
    if types.is_list(data_type) or types.is_large_list(data_type):
        element = _find_converter(data_type.value_type)
        return None if element is None else lambda value: value and [element(each) for each in value]
    if types.is_struct(data_type):
        fields = {field.name: found for field in data_type if (found := _find_converter(field.type)) is not None}
        if not fields:
            return None
        return lambda value: (
            value and {name: fields[name](each) if name in fields else each for name, each in value.items()}
        )
    return None


def _to_utc(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
