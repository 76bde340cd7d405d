"""CSV input (RFC 4180, UTF-8): a header, then one record per row.

CSV has no types, so all values are strings, also in JSON objects. Quoted cells may contain line breaks; the line number
of a row is that of its first line.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from msgspec.json import encode

from chronik.cli.arguments import InvalidInput
from chronik.cli.records.line_splitter import LINE_BYTES_MAX, LineTooLong, NumberedRecords, split_lines
from chronik.client.records import OutgoingRecord
from chronik.wording import pluralize

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Spreadsheet programs write it at the start of UTF-8 files."""

RowParser = Callable[[list[str]], OutgoingRecord]


def parse_csv(chunks: Iterable[bytes], key: str | None, value: str | None) -> Iterator[NumberedRecords]:
    """Yield records in chunks, each with its line number; raise InvalidInput with the line number of an error."""
    rows = _CsvRows(chunks)
    parse_row: RowParser | None = None
    chunk: NumberedRecords = []
    try:
        for cells in rows:
            if cells and parse_row is None:
                parse_row = _row_parser(cells, key, value)
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
        self._reader = csv.reader(self._lines(chunks), strict=True)
        self.number = 1

    def __iter__(self) -> Iterator[list[str]]:
        for cells in self._reader:
            yield cells
            self.number = self._reader.line_num + 1

    @property
    def would_block(self) -> bool:
        """Return whether all received input has been parsed, so that the next row would block."""
        return not self._arrived

    def _lines(self, chunks: Iterable[bytes]) -> Iterator[str]:
        is_first = True
        for lines in split_lines(chunks, keep_carriage_returns=True):
            self._arrived.extend(lines)
            while self._arrived:
                line = self._arrived.popleft()
                yield (line.removeprefix(BYTE_ORDER_MARK) if is_first else line).decode() + "\n"
                is_first = False


def _row_parser(names: list[str], key: str | None, value: str | None) -> RowParser:
    if len(set(names)) < len(names):
        raise InvalidInput(f"duplicate column name: {', '.join(names)}")
    key_at = None if key is None else _column_index(names, key)
    value_at = None if value is None else _column_index(names, value)
    rest = [(number, name) for number, name in enumerate(names) if number != key_at]

    def parse_row(cells: list[str]) -> OutgoingRecord:
        if len(cells) != len(names):
            raise InvalidInput(f"expected {pluralize(len(names), 'cell')} as in the header, got {len(cells)}")
        value_bytes = (
            encode({name: cells[number] for number, name in rest}) if value_at is None else cells[value_at].encode()
        )
        return OutgoingRecord(value_bytes, None if key_at is None else cells[key_at].encode())

    return parse_row


def _column_index(names: list[str], name: str) -> int:
    if name not in names:
        raise InvalidInput(f"no column {name!r}; the columns are {', '.join(names)}")
    return names.index(name)
