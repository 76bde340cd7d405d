"""Command-line arguments shared by the measurements."""

from __future__ import annotations

import argparse

from chronik.bench.librdkafka_config import DEFAULT_TOPIC
from chronik.client.admin import BROKER_DEFAULT
from chronik.client.arguments import add_bootstrap_argument
from chronik.client.arguments import parse_bootstrap_access as parse_bootstrap_access
from chronik.client.cluster import ClusterClient

CLIENT_ID = "chronik-bench"


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    add_bootstrap_argument(parser, "the broker to measure")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def add_load_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", default=DEFAULT_TOPIC, metavar="TOPIC", help="topic to use (default: %(default)s)")
    parser.add_argument(
        "--pid", type=parse_positive_int, metavar="PID", help="local process id of the broker, to report its CPU"
    )


def add_replication_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replication-factor",
        type=parse_positive_int,
        default=BROKER_DEFAULT,
        metavar="N",
        help="replication factor if the topic is created (default: the broker's)",
    )


def connect(arguments: argparse.Namespace) -> ClusterClient:
    return ClusterClient(parse_bootstrap_access(arguments), client_id=CLIENT_ID)


def parse_positive_int(text: str) -> int:
    number = int(text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected an integer of 1 or more")
    return number
