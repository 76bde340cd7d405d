"""The `chronik bench` command: runs a measurement and prints its result."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Any

from chronik.bench.arguments import add_common_arguments
from chronik.bench.report import format_json, format_table
from chronik.command_parser import CommandParser
from chronik.wording import format_spelling_suggestion

MEASUREMENTS = {
    "produce": "acknowledged records per second of one producer",
    "consume": "records per second that one consumer reads",
    "round-trip": "milliseconds from producing a record to consuming it",
    "acks": "milliseconds until a single record is acknowledged",
    "gaps": "seconds without acknowledged or consumed records while brokers fail and restart",
    "topics": "seconds to create many topics, with one request and with many threads",
    "metadata": "Metadata requests per second for one topic among many",
    "commits": "committed offsets per second of many groups, and the latency of a commit",
    "transactions": "committed transactions per second of one producer, and the latency of a commit",
}


def main(argv: list[str]) -> int:
    """Run the benchmark that the first argument names, and return the exit code.

    Raises ChronikError.
    """
    if not argv or argv[0] not in MEASUREMENTS:
        is_help = argv[:1] in (["-h"], ["--help"])
        if argv and not is_help:
            hint = format_spelling_suggestion(argv[0], MEASUREMENTS)
            print(f"chronik bench: unknown measurement {argv[0]!r}{hint}", file=sys.stderr)
        print(_format_usage(), file=sys.stdout if is_help else sys.stderr)
        return 0 if is_help else 2
    measurement = argv[0]
    arguments = create_parser(measurement).parse_args(argv[1:])
    results = _import_benchmark(measurement).run(arguments)
    print(format_json(results) if arguments.json else format_table(results))
    return 0


def create_parser(measurement: str) -> argparse.ArgumentParser:
    """Return the command-line argument parser of a benchmark."""
    parser = CommandParser(prog=f"chronik bench {measurement}", description=f"Measure {MEASUREMENTS[measurement]}.")
    _import_benchmark(measurement).add_arguments(parser)
    add_common_arguments(parser)
    return parser


def _import_benchmark(measurement: str) -> Any:
    return import_module(f"chronik.bench.{measurement.replace('-', '_')}")


def _format_usage() -> str:
    width = max(map(len, MEASUREMENTS))
    lines = [f"  {measurement:<{width}}  {description_text}" for measurement, description_text in MEASUREMENTS.items()]
    return "\n".join(["usage: chronik bench MEASUREMENT …", "", *lines])
