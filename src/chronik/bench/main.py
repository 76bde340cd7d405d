"""`chronik bench`: finds the measurement by its first word, runs it and prints what came out."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Any

from chronik.bench.arguments import add_common_arguments
from chronik.bench.report import as_json, as_table
from chronik.command_parser import CommandParser
from chronik.wording import suggestion

MEASUREMENTS = {
    "produce": "records per second that one producer gets acknowledged",
    "consume": "records per second that one consumer reads",
    "round-trip": "milliseconds from producing a record to consuming it",
    "acks": "milliseconds until a single record is acknowledged",
    "gaps": "seconds for which a topic takes no record, or gives none, while its brokers come and go",
    "topics": "seconds to create many topics, by one request and by many threads",
    "metadata": "Metadata requests per second for one topic among many",
    "commits": "offsets per second that many groups commit, and how long a commit takes",
    "transactions": "transactions per second that one producer commits, and how long a commit takes",
}


def main(argv: list[str]) -> int:
    """Raises ChronikError when there is nothing to print."""
    if not argv or argv[0] not in MEASUREMENTS:
        asked_for_help = argv[:1] in (["-h"], ["--help"])
        if argv and not asked_for_help:
            meant = suggestion(argv[0], MEASUREMENTS)
            print(f"chronik bench: unknown measurement {argv[0]!r}{meant}", file=sys.stderr)
        print(_usage(), file=sys.stdout if asked_for_help else sys.stderr)
        return 0 if asked_for_help else 2
    word = argv[0]
    arguments = parser_of(word).parse_args(argv[1:])
    results = _measurement(word).run(arguments)
    print(as_json(results) if arguments.json else as_table(results))
    return 0


def parser_of(word: str) -> argparse.ArgumentParser:
    """Returns what reads the words after the name of a measurement."""
    parser = CommandParser(prog=f"chronik bench {word}", description=f"Measures {MEASUREMENTS[word]}.")
    _measurement(word).add_arguments(parser)
    add_common_arguments(parser)
    return parser


def _measurement(word: str) -> Any:
    return import_module(f"chronik.bench.{word.replace('-', '_')}")


def _usage() -> str:
    width = max(map(len, MEASUREMENTS))
    lines = [f"  {word:<{width}}  {what}" for word, what in MEASUREMENTS.items()]
    return "\n".join(["usage: chronik bench MEASUREMENT …", "", *lines])
