"""Splitting of byte chunks into lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chronik.cli.arguments import InvalidInput
from chronik.client.records import OutgoingRecord
from chronik.limits import MIB

LINE_BYTES_MAX = 64 * MIB
"""Maximum length of a line, to bound the memory for input without line breaks. No topic accepts larger records."""


class LineTooLong(InvalidInput):
    """A line that exceeds the maximum length."""


NumberedRecords = list[tuple[int, OutgoingRecord]]
"""Records that are sent together, each with the number of its first line."""


def split_lines(chunks: Iterable[bytes], *, keep_carriage_returns: bool = False) -> Iterator[list[bytes]]:
    """Yield the lines that each chunk completes; the last line needs no line break. Raise LineTooLong."""
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
    """Yield each group of lines with the line number of its first line."""
    number = 1
    for lines in groups:
        yield number, lines
        number += len(lines)
