"""Input formats of `chronik produce`: lines, JSON and CSV.

Each read of the input gives one chunk of records, so a typed line is sent at once, and a file is sent in large batches.
Records before an invalid line are yielded before the error is raised, so the user can fix that line and continue there.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from chronik.cli.arguments import InvalidInput
from chronik.cli.records.csv_input import parse_csv
from chronik.cli.records.line_splitter import NumberedRecords, number_lines, split_lines
from chronik.cli.records.record_json import record_from_json
from chronik.client.records import OutgoingRecord

FORMATS: Final = ("lines", "json", "csv")

LineParser = Callable[[bytes], OutgoingRecord]


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


def input_parser(arguments: argparse.Namespace) -> Callable[[Iterable[bytes]], Iterator[NumberedRecords]]:
    """Return a function that parses input into chunks of records; raise InvalidInput for contradicting options."""
    format = "json" if arguments.json else arguments.format
    if format != "csv" and (arguments.key is not None or arguments.value is not None):
        raise InvalidInput("--key and --value require --format csv; for lines, use --key-separator")
    if arguments.format != "lines" and arguments.key_separator is not None:
        raise InvalidInput(f"--key-separator cannot be used with --format {format}")
    if format == "csv":
        return lambda chunks: parse_csv(chunks, arguments.key, arguments.value)
    parse = record_from_json if format == "json" else _line_parser(arguments.key_separator)
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


def _line_parser(key_separator: str | None) -> LineParser:
    if key_separator is None:
        return OutgoingRecord
    separator = os.fsencode(key_separator)

    def parse(line: bytes) -> OutgoingRecord:
        key, found, value = line.partition(separator)
        if not found:
            raise InvalidInput(f"key separator {key_separator!r} not found")
        return OutgoingRecord(value, key)

    return parse
