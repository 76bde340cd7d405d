"""Arguments and connections that the cluster administration commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from chronik.cli.arguments import (
    CommandRunner,
    InvalidInput,
    add_client_arguments,
    add_json_argument,
    connect_cluster,
    positive_seconds,
)
from chronik.cli.cluster.local_nodes import load_nodes
from chronik.cli.cluster.operation import ClusterOperation
from chronik.client.cluster_view import ClusterState
from chronik.metadata.levels import DYNAMIC_MEMBERSHIP_LEVEL, FEATURE_NAME
from chronik.protocol.messages.describe_nodes import DescribedNode

UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


def add_operator_arguments(parser: argparse.ArgumentParser, run: CommandRunner, *, has_throttle: bool = False) -> None:
    add_directory_argument(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="show the plan without executing it")
    parser.add_argument(
        "--wait", type=positive_seconds, metavar="SECONDS", help="maximum time to wait (default: until it is done)"
    )
    if has_throttle:
        parser.add_argument(
            "--throttle",
            type=_parse_rate,
            metavar="BYTES/S",
            help="maximum replication rate of reassignments per broker, such as 50M",
        )
    add_json_argument(parser, "print the plan as JSON; requires --yes or --dry-run")
    add_client_arguments(parser, run)


def add_directory_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, metavar="DIR", help="directory of a cluster on this machine")


@contextmanager
def open_operation(
    arguments: argparse.Namespace, interrupt_hint: str, wait_s: float | None = None
) -> Iterator[ClusterOperation]:
    if arguments.dir is not None:
        nodes = load_nodes(arguments.dir)
        nodes.sort(key=lambda node: (node.pid() is None, node.id))  # running nodes first
        arguments.bootstrap_server = ",".join(str(node.config.kafka) for node in nodes)
    operation = ClusterOperation(connect_cluster(arguments), wait_s, interrupt_hint)
    try:
        yield operation
    finally:
        operation.cluster.close()


def check_options(arguments: argparse.Namespace) -> None:
    """Raise InvalidInput for options that contradict each other."""
    if arguments.json and not (arguments.yes or arguments.dry_run):
        raise InvalidInput("--json cannot ask for confirmation: use --yes or --dry-run")


def require_membership_changes(view: ClusterState) -> ClusterState:
    """Return the view of a cluster; raise InvalidInput if its membership cannot be changed."""
    level = view.described.level
    if level < DYNAMIC_MEMBERSHIP_LEVEL:
        raise InvalidInput(
            f"the cluster is at {FEATURE_NAME} {level}; membership changes require level {DYNAMIC_MEMBERSHIP_LEVEL}:"
            " use chronik cluster upgrade when all nodes support it"
        )
    if not view.nodes:
        raise InvalidInput("this node runs in standalone mode: it has no [[peers]]")
    return view


def find_described_node(view: ClusterState, node_id: int) -> DescribedNode | None:
    """Return the node's description, also while it is being removed; None if it is not a member."""
    return next((node for node in view.described.nodes if node.node_id == node_id), None)


def parse_node_id(text: str) -> int:
    if not re.fullmatch("[0-9]{1,10}", text) or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a node id")
    return int(text)


def _parse_rate(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12})([kMG]?)", text)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected bytes per second, such as 1000000, 500k or 50M")
    return int(match[1]) * UNITS[match[2]]
