"""What `produce` reads, as records: each with the number of the line where it begins.

What one read brings is one portion, so that a line typed by hand goes out alone, and a file goes in large batches. What
stands before a line that cannot be used is yielded before the error is raised: whoever mends it goes on from that line.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from chronik.cli.arguments import WrongInput
from chronik.cli.records.csv_rows import csv_portions
from chronik.cli.records.lines import Portion, numbered, split_lines
from chronik.cli.records.record_json import record_from_json
from chronik.client.records import OutgoingRecord

FORMATS: Final = ("lines", "json", "csv")

Parse = Callable[[bytes], OutgoingRecord]


def add_format_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", "--key-separator", metavar="TEXT", help="what stands between key and value in a line")
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--format", choices=FORMATS, default="lines", help="what is read (default: %(default)s)")
    formats.add_argument(
        "--json", action="store_true", help="as --format json: lines as `chronik consume --json` prints them"
    )
    parser.add_argument("--key", metavar="COLUMN", help="with --format csv: the column that is the key")
    parser.add_argument(
        "--value", metavar="COLUMN", help="with --format csv: the column that is the value (default: all but the key)"
    )


def portions_of(arguments: argparse.Namespace) -> Callable[[Iterable[bytes]], Iterator[Portion]]:
    """Returns what makes portions of chunks of bytes. Raises WrongInput."""
    format = "json" if arguments.json else arguments.format
    if format != "csv" and (arguments.key is not None or arguments.value is not None):
        raise WrongInput("--key and --value name columns of --format csv; lines have --key-separator")
    if arguments.format != "lines" and arguments.key_separator is not None:
        raise WrongInput(f"--key-separator: expected none with --format {format}")
    if format == "csv":
        return lambda chunks: csv_portions(chunks, arguments.key, arguments.value)
    parse = record_from_json if format == "json" else _line_parser(arguments.key_separator)
    return lambda chunks: _line_portions(chunks, parse, skips_blank=format == "json")


def _line_portions(chunks: Iterable[bytes], parse: Parse, *, skips_blank: bool) -> Iterator[Portion]:
    for first_number, lines in numbered(split_lines(chunks)):
        portion: Portion = []
        for number, line in enumerate(lines, first_number):
            if skips_blank and not line.strip():
                continue
            try:
                portion.append((number, parse(line)))
            except WrongInput as error:
                yield portion
                raise WrongInput(f"line {number}: {error}") from None
        yield portion


def _line_parser(key_separator: str | None) -> Parse:
    if key_separator is None:
        return OutgoingRecord
    separator = os.fsencode(key_separator)

    def parse(line: bytes) -> OutgoingRecord:
        key, found, value = line.partition(separator)
        if not found:
            raise WrongInput(f"no key separator {key_separator!r}")
        return OutgoingRecord(value, key)

    return parse
