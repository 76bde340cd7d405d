"""Input formats of `chronik produce`: lines, JSON and CSV.

Each read of the input gives one chunk of records, so a typed line is sent at once, and a file is sent in large batches.
Records before an invalid line are yielded before the error is raised, so the user can fix that line and continue there.

CSV is RFC 4180 in UTF-8: a header, then one record per row. It has no types, so all values are strings, also in JSON
objects. Quoted cells may contain line breaks; the line number of a row is that of its first line.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.json import encode

from chronik.cli.arguments import InvalidInput
from chronik.cli.records.record_json import record_from_json
from chronik.client.records import OutgoingRecord
from chronik.limits import MIB
from chronik.wording import pluralize

if TYPE_CHECKING:
    from chronik.cli.records.record_encoder import FieldEncoder, RecordEncoders

LINE_BYTES_MAX = 64 * MIB
"""Maximum length in bytes of an input line, from which records are parsed."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""The UTF-8 byte order mark, which spreadsheet programs write at the start of files."""

RowParser = Callable[[list[str]], OutgoingRecord]

FORMATS: Final = ("lines", "json", "csv")

LineParser = Callable[[bytes], OutgoingRecord]


class LineTooLong(InvalidInput):
    """An input line exceeds the maximum length."""


NumberedRecords = list[tuple[int, OutgoingRecord]]
"""Records that are produced together, each with the number of its first input line."""


def split_lines(chunks: Iterable[bytes], *, keep_carriage_returns: bool = False) -> Iterator[list[bytes]]:
    """Split input that arrives in chunks into lines, and yield the lines that each chunk completes.

    The last line needs no line break. Raise LineTooLong if a line is too long.
    """
    rest, number = bytearray(), 1
    for chunk in chunks:
        complete, line_end, partial = chunk.rpartition(b"\n")
        if line_end:
            lines = (bytes(rest) + complete).split(b"\n")
            rest.clear()
            number += len(lines)
            yield lines if keep_carriage_returns else [line.removesuffix(b"\r") for line in lines]
        rest += partial
        if len(rest) > LINE_BYTES_MAX:
            raise LineTooLong(f"line {number}: longer than {LINE_BYTES_MAX} bytes")
    if rest:
        yield [bytes(rest)]


def number_lines(groups: Iterable[list[bytes]]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield groups of input lines, each with the line number of its first line."""
    number = 1
    for lines in groups:
        yield number, lines
        number += len(lines)


def parse_csv(chunks: Iterable[bytes], key: str | None, value: str | None) -> Iterator[NumberedRecords]:
    """Parse CSV input, and yield its records with their line numbers in chunks. Raise InvalidInput on errors."""
    rows = _CsvRows(chunks)
    parse_row: RowParser | None = None
    chunk: NumberedRecords = []
    try:
        for cells in rows:
            if cells and parse_row is None:
                parse_row = _create_row_parser(cells, key, value)
            elif cells and parse_row is not None:  # skip blank lines
                chunk.append((rows.number, parse_row(cells)))
            if rows.would_block:
                yield chunk
                chunk = []
    except LineTooLong:
        raise
    except (InvalidInput, csv.Error, UnicodeDecodeError) as error:
        yield chunk
        reason = f"not UTF-8: {error.reason}" if isinstance(error, UnicodeDecodeError) else error
        raise InvalidInput(f"line {rows.number}: {reason}") from None


class _CsvRows:
    """The rows of a CSV input, and the line number of the current row."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        csv.field_size_limit(LINE_BYTES_MAX)  # the default is 128 KiB; this also ends an unclosed quote
        self._arrived: deque[bytes] = deque()
        self._reader = csv.reader(self._decode_lines(chunks), strict=True)
        self.number = 1

    def __iter__(self) -> Iterator[list[str]]:
        for cells in self._reader:
            yield cells
            self.number = self._reader.line_num + 1

    @property
    def would_block(self) -> bool:
        """Return whether reading the next CSV row would block, because all received input is parsed."""
        return not self._arrived

    def _decode_lines(self, chunks: Iterable[bytes]) -> Iterator[str]:
        is_first = True
        for lines in split_lines(chunks, keep_carriage_returns=True):
            self._arrived.extend(lines)
            while self._arrived:
                line = self._arrived.popleft()
                yield (line.removeprefix(BYTE_ORDER_MARK) if is_first else line).decode() + "\n"
                is_first = False


def _create_row_parser(names: list[str], key: str | None, value: str | None) -> RowParser:
    if len(set(names)) < len(names):
        raise InvalidInput(f"duplicate column name: {', '.join(names)}")
    key_at = None if key is None else _find_column_index(names, key)
    value_at = None if value is None else _find_column_index(names, value)
    rest = [(number, name) for number, name in enumerate(names) if number != key_at]

    def parse_row(cells: list[str]) -> OutgoingRecord:
        if len(cells) != len(names):
            raise InvalidInput(f"expected {pluralize(len(names), 'cell')} as in the header, got {len(cells)}")
        value_bytes = (
            encode({name: cells[number] for number, name in rest}) if value_at is None else cells[value_at].encode()
        )
        return OutgoingRecord(value_bytes, None if key_at is None else cells[key_at].encode())

    return parse_row


def _find_column_index(names: list[str], name: str) -> int:
    if name not in names:
        raise InvalidInput(f"no column {name!r}; the columns are {', '.join(names)}")
    return names.index(name)


def add_format_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", "--key-separator", metavar="TEXT", help="separator of key and value in a line")
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--format", choices=FORMATS, default="lines", help="input format (default: %(default)s)")
    formats.add_argument(
        "--json", action="store_true", help="same as --format json: lines as `chronik consume --json` prints them"
    )
    parser.add_argument("--key", metavar="COLUMN", help="with --format csv: column of the key")
    parser.add_argument(
        "--value", metavar="COLUMN", help="with --format csv: column of the value (default: all columns except the key)"
    )


def create_input_parser(
    arguments: argparse.Namespace, encoders: RecordEncoders | None = None
) -> Callable[[Iterable[bytes]], Iterator[NumberedRecords]]:
    """Return a function that parses input into chunks of records and encodes typed keys and values.

    Raises:
        InvalidInput: Options conflict.
    """
    format = "json" if arguments.json else arguments.format
    if format != "csv" and (arguments.key is not None or arguments.value is not None):
        raise InvalidInput("--key and --value require --format csv; for lines, use --key-separator")
    if arguments.format != "lines" and arguments.key_separator is not None:
        raise InvalidInput(f"--key-separator cannot be used with --format {format}")
    if format == "csv":
        if encoders is not None and encoders.has_default:
            raise InvalidInput("--format csv cannot be used with options for schemas, because cells have no types")
        return lambda chunks: parse_csv(chunks, arguments.key, arguments.value)
    parse: LineParser = partial(record_from_json, encoders=encoders)
    if format == "lines":
        parse = _create_line_parser(arguments.key_separator, encoders)
    return lambda chunks: _parse_lines(chunks, parse, skips_blank=format == "json")


def _parse_lines(chunks: Iterable[bytes], parse: LineParser, *, skips_blank: bool) -> Iterator[NumberedRecords]:
    for first_number, lines in number_lines(split_lines(chunks)):
        chunk: NumberedRecords = []
        for number, line in enumerate(lines, first_number):
            if skips_blank and not line.strip():
                continue
            try:
                chunk.append((number, parse(line)))
            except InvalidInput as error:
                yield chunk
                raise InvalidInput(f"line {number}: {error}") from None
        yield chunk


def _create_line_parser(key_separator: str | None, encoders: RecordEncoders | None) -> LineParser:
    split: LineParser = OutgoingRecord
    if key_separator is not None:
        split = partial(_split_key, os.fsencode(key_separator))
    if encoders is None or not encoders.has_default:
        return split

    def parse(line: bytes) -> OutgoingRecord:
        record = split(line)
        return record._replace(
            key=_encode_text(record.key, encoders.key), value=_encode_text(record.value, encoders.value)
        )

    return parse


def _encode_text(text: bytes | None, encoder: FieldEncoder) -> bytes | None:
    return encoder.encode(text) if text is not None and encoder.has_default else text


def _split_key(separator: bytes, line: bytes) -> OutgoingRecord:
    key, found, value = line.partition(separator)
    if not found:
        raise InvalidInput(f"key separator {os.fsdecode(separator)!r} not found")
    return OutgoingRecord(value, key)
