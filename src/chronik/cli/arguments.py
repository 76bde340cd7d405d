"""Command-line arguments that many commands share, and timestamps (ISO 8601, or milliseconds since the epoch)."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from chronik.client.arguments import BOOTSTRAP_VARIABLE as BOOTSTRAP_VARIABLE
from chronik.client.arguments import add_bootstrap_argument as add_bootstrap_argument
from chronik.client.arguments import add_client_config_argument as add_client_config_argument
from chronik.client.arguments import load_security as load_security
from chronik.client.arguments import parse_bootstrap_access as parse_bootstrap_access
from chronik.client.cluster import ClusterClient
from chronik.errors import ChronikError
from chronik.listeners import Address

CLIENT_ID = "chronik-cli"

REGISTRY_VARIABLE = "CHRONIK_REGISTRY_URL"
"""Name of the environment variable with the URL of the schema registry."""

CommandRunner = Callable[[argparse.Namespace], int]

INT64_MAX = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Subparsers(Protocol):
    """The interface of the object that argparse's `add_subparsers` returns, to which commands add their parsers."""

    def add_parser(self, name: str, /, *, help: str) -> argparse.ArgumentParser: ...


class InvalidInput(ChronikError):
    """An invalid command-line argument or input; the message states what was expected."""


def add_client_arguments(parser: argparse.ArgumentParser, run: CommandRunner) -> None:
    parser.set_defaults(run=run)
    add_bootstrap_argument(parser)
    parser.add_argument(
        "--timeout",
        type=parse_positive_seconds,
        default=30.0,
        metavar="SECONDS",
        help="request timeout (default: %(default)g)",
    )
    add_debug_argument(parser)


def add_registry_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-r",
        "--registry",
        metavar="URL",
        default=os.environ.get(REGISTRY_VARIABLE) or None,
        help=f"URL of a schema registry (default: {REGISTRY_VARIABLE} in the environment, schema.registry.url of "
        "--client-config, or the cluster's registry)",
    )


def add_json_argument(parser: argparse.ArgumentParser, help: str = "print JSON") -> None:
    parser.add_argument("--json", action="store_true", help=help)


def add_debug_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def connect_cluster(arguments: argparse.Namespace) -> ClusterClient:
    return ClusterClient(parse_bootstrap_access(arguments), client_id=CLIENT_ID, timeout_s=arguments.timeout)


def parse_key_values(texts: Iterable[str], what: str) -> dict[str, str]:
    """Parse NAME=VALUE arguments; raise InvalidInput if one has another form."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InvalidInput(f"{what} {text!r}: expected NAME=VALUE")
        pairs[name] = value
    return pairs


def parse_positive_int(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an integer of at least 1")
    return number


def parse_address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {error}") from None


def parse_positive_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of seconds greater than 0")
    return seconds


def parse_timestamp_ms(text: str) -> int:
    """Parse a timestamp, by default in UTC, into milliseconds since the epoch; raise InvalidInput on error."""
    try:
        if text.isascii() and text.isdigit():
            return check_int64(int(text))
        found = datetime.fromisoformat(text)
        return ((found.replace(tzinfo=UTC) if found.tzinfo is None else found) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        expected = "a time such as 2026-05-31T12:00:00Z, or milliseconds since the epoch"
        raise InvalidInput(f"{text!r}: expected {expected}") from None


def check_int64(number: int) -> int:
    """Return the number if it fits into an int64, otherwise raise ValueError."""
    if abs(number) > INT64_MAX:
        raise ValueError(f"{number} does not fit into 64 bits")
    return number
