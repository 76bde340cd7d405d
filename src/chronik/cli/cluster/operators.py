"""Arguments and connections that the cluster administration commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from chronik.cli.arguments import (
    Run,
    WrongInput,
    add_client_arguments,
    add_json_argument,
    cluster_of,
    positive_seconds,
)
from chronik.cli.cluster.carrying_out import Operation
from chronik.cli.cluster.local_nodes import existing_nodes
from chronik.client.cluster_views import ClusterView
from chronik.metadata.levels import FEATURE, GROWTH
from chronik.protocol.messages.describe_nodes import DescribedNode

UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


def add_operator_arguments(parser: argparse.ArgumentParser, run: Run, *, moves: bool = False) -> None:
    add_place_arguments(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="show the plan without executing it")
    parser.add_argument(
        "--wait", type=positive_seconds, metavar="SECONDS", help="maximum time to wait (default: until it is done)"
    )
    if moves:
        parser.add_argument(
            "--throttle",
            type=_parse_rate,
            metavar="BYTES/S",
            help="maximum replication rate of reassignments per broker, such as 50M",
        )
    add_json_argument(parser, "print the plan as JSON; requires --yes or --dry-run")
    add_client_arguments(parser, run)


def add_place_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, metavar="DIR", help="directory of a cluster on this machine")


@contextmanager
def operating(arguments: argparse.Namespace, if_stopped: str, wait_s: float | None = None) -> Iterator[Operation]:
    if arguments.dir is not None:
        nodes = existing_nodes(arguments.dir)
        nodes.sort(key=lambda node: (node.pid() is None, node.id))  # running nodes first
        arguments.bootstrap_server = ",".join(str(node.config.kafka) for node in nodes)
    operation = Operation(cluster_of(arguments), wait_s, if_stopped)
    try:
        yield operation
    finally:
        operation.cluster.close()


def checked(arguments: argparse.Namespace) -> None:
    """Raise InvalidInput for options that contradict each other."""
    if arguments.json and not (arguments.yes or arguments.dry_run):
        raise WrongInput("--json cannot ask for confirmation: use --yes or --dry-run")


def grown(view: ClusterView) -> ClusterView:
    """Return the view of a cluster; raise InvalidInput if its membership cannot be changed."""
    level = view.described.level
    if level < GROWTH:
        raise WrongInput(
            f"the cluster is at {FEATURE} {level}; membership changes require level {GROWTH}:"
            " use chronik cluster upgrade when all nodes support it"
        )
    if not view.nodes:
        raise WrongInput("this node runs in standalone mode: it has no [[peers]]")
    return view


def described(view: ClusterView, node_id: int) -> DescribedNode | None:
    """Return the node's description, also while it is being removed; None if it is not a member."""
    return next((node for node in view.described.nodes if node.node_id == node_id), None)


def node_id(text: str) -> int:
    if not re.fullmatch("[0-9]{1,10}", text) or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a node id")
    return int(text)


def _parse_rate(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12})([kMG]?)", text)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected bytes per second, such as 1000000, 500k or 50M")
    return int(match[1]) * UNITS[match[2]]
