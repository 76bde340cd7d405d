"""CSV as records: a line of names, then a record for each row (RFC 4180, in UTF-8).

CSV has no types, so every cell is text, also in the JSON object that a row becomes. A cell in quotes may have line
ends: a row is numbered by its first line.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from msgspec.json import encode

from chronik.cli.arguments import WrongInput
from chronik.cli.records.lines import LINE_BYTES_MAX, LineTooLong, Portion, split_lines
from chronik.client.records import OutgoingRecord
from chronik.wording import counted

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Spreadsheets put it in front of UTF-8."""

ToRecord = Callable[[list[str]], OutgoingRecord]


def csv_portions(chunks: Iterable[bytes], key: str | None, value: str | None) -> Iterator[Portion]:
    """Raises WrongInput, with the number of a line."""
    rows = _Rows(chunks)
    record_of: ToRecord | None = None
    portion: Portion = []
    try:
        for cells in rows:
            if cells and record_of is None:
                record_of = _record_maker(cells, key, value)
            elif cells and record_of is not None:  # a blank line is no row
                portion.append((rows.number, record_of(cells)))
            if rows.is_next_to_be_waited_for:
                yield portion
                portion = []
    except LineTooLong:
        raise
    except (WrongInput, csv.Error, UnicodeDecodeError) as error:
        yield portion
        reason = f"not UTF-8: {error.reason}" if isinstance(error, UnicodeDecodeError) else error
        raise WrongInput(f"line {rows.number}: {reason}") from None


class _Rows:
    """Rows of cells, and the line where the last of them begins."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        csv.field_size_limit(LINE_BYTES_MAX)  # otherwise 128 KiB; a quote that nobody closes ends there, too
        self._arrived: deque[bytes] = deque()
        self._reader = csv.reader(self._lines(chunks), strict=True)
        self.number = 1

    def __iter__(self) -> Iterator[list[str]]:
        for cells in self._reader:
            yield cells
            self.number = self._reader.line_num + 1

    @property
    def is_next_to_be_waited_for(self) -> bool:
        """All that has arrived is read: what was found is sent before more is waited for."""
        return not self._arrived

    def _lines(self, chunks: Iterable[bytes]) -> Iterator[str]:
        is_first = True
        for lines in split_lines(chunks, keep_returns=True):
            self._arrived.extend(lines)
            while self._arrived:
                line = self._arrived.popleft()
                yield (line.removeprefix(BYTE_ORDER_MARK) if is_first else line).decode() + "\n"
                is_first = False


def _record_maker(names: list[str], key: str | None, value: str | None) -> ToRecord:
    if len(set(names)) < len(names):
        raise WrongInput(f"two columns have the same name: {', '.join(names)}")
    key_at = None if key is None else _column(names, key)
    value_at = None if value is None else _column(names, value)
    rest = [(number, name) for number, name in enumerate(names) if number != key_at]

    def record_of(cells: list[str]) -> OutgoingRecord:
        if len(cells) != len(names):
            raise WrongInput(f"expected {counted(len(names), 'cell')}, one for each name, not {len(cells)}")
        whole = encode({name: cells[number] for number, name in rest}) if value_at is None else cells[value_at].encode()
        return OutgoingRecord(whole, None if key_at is None else cells[key_at].encode())

    return record_of


def _column(names: list[str], name: str) -> int:
    if name not in names:
        raise WrongInput(f"no column {name!r}; there are {', '.join(names)}")
    return names.index(name)
