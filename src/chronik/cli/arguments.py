"""Arguments that many commands share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from chronik.client.access.settings import OPEN, Access, ClientSecurity, parse_security, read_settings
from chronik.client.cluster import DEFAULT_BOOTSTRAP, Cluster
from chronik.errors import ChronikError

BOOTSTRAP_VARIABLE = "CHRONIK_BOOTSTRAP_SERVER"
CLIENT_CONFIG_VARIABLE = "CHRONIK_CLIENT_CONFIG"
CLIENT_ID = "chronik-cli"

Run = Callable[[argparse.Namespace], int]


class Actions(Protocol):
    """The actions of a command, to which more are added."""

    def add_parser(self, name: str, /, *, help: str) -> argparse.ArgumentParser: ...


class WrongInput(ChronikError):
    """What the user gave cannot be used; the message says what was expected."""


def add_client_arguments(parser: argparse.ArgumentParser, run: Run) -> None:
    parser.set_defaults(run=run)
    add_bootstrap_argument(parser)
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=30.0,
        metavar="SECONDS",
        help="when to give up (default: %(default)g)",
    )
    add_debug_argument(parser)


def add_bootstrap_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-b",
        "--bootstrap-server",
        metavar="HOST:PORT",
        default=os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP,
        help=f"a broker to ask; also {BOOTSTRAP_VARIABLE} (now %(default)s)",
    )
    add_client_config_argument(parser)


def add_client_config_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--client-config",
        type=Path,
        metavar="FILE",
        default=os.environ.get(CLIENT_CONFIG_VARIABLE) or None,
        help="a file of Kafka's client settings, such as security.protocol, where brokers want TLS or a login; also "
        + CLIENT_CONFIG_VARIABLE,
    )


def add_json_argument(parser: argparse.ArgumentParser, help: str = "print JSON") -> None:
    parser.add_argument("--json", action="store_true", help=help)


def add_debug_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def cluster_of(arguments: argparse.Namespace) -> Cluster:
    return Cluster(bootstrap_of(arguments), client_id=CLIENT_ID, timeout_s=arguments.timeout)


def bootstrap_of(arguments: argparse.Namespace) -> Access:
    """Where the brokers are, and how to get in. Raises ClientError."""
    return Access(arguments.bootstrap_server, security_of(arguments))


def security_of(arguments: argparse.Namespace) -> ClientSecurity:
    """Raises ClientError."""
    path = arguments.client_config
    return OPEN if path is None else parse_security(read_settings(Path(path))).with_whole_paths()


def parse_pairs(texts: Iterable[str], what: str) -> dict[str, str]:
    """Parses NAME=VALUE arguments. Raises WrongInput."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise WrongInput(f"{what} {text!r}: expected NAME=VALUE")
        pairs[name] = value
    return pairs


def positive(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, 1 or more")
    return number


def positive_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of seconds above 0")
    return seconds
