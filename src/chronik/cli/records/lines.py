"""Bytes into lines, however they arrive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chronik.cli.arguments import WrongInput
from chronik.client.records import OutgoingRecord
from chronik.limits import MIB

LINE_BYTES_MAX = 64 * MIB
"""No topic accepts a record of this size; without a limit a file without line ends would fill the memory."""


class LineTooLong(WrongInput):
    """The message has its number."""


Portion = list[tuple[int, OutgoingRecord]]
"""Records that are sent together, each with the number of the line where it begins."""


def split_lines(chunks: Iterable[bytes], *, keep_returns: bool = False) -> Iterator[list[bytes]]:
    """Yields the lines that each chunk completes. The last needs no line end. Raises LineTooLong for an endless one."""
    rest, number = bytearray(), 1
    for chunk in chunks:
        whole, line_end, begun = chunk.rpartition(b"\n")
        if line_end:
            lines = (bytes(rest) + whole).split(b"\n")
            rest.clear()
            number += len(lines)
            yield lines if keep_returns else [line.removesuffix(b"\r") for line in lines]
        rest += begun
        if len(rest) > LINE_BYTES_MAX:
            raise LineTooLong(f"line {number}: it has more than {LINE_BYTES_MAX} bytes")
    if rest:
        yield [bytes(rest)]


def numbered(groups: Iterable[list[bytes]]) -> Iterator[tuple[int, list[bytes]]]:
    """Yields each group of lines with the number of its first line."""
    number = 1
    for lines in groups:
        yield number, lines
        number += len(lines)
