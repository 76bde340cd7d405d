"""`chronik cluster ok-to-stop`: check whether nodes can be stopped without losing availability."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Final

from chronik.cli.arguments import Subparsers, add_client_arguments, add_json_argument, parse_positive_seconds
from chronik.cli.cluster.operation import POLL_SECONDS, add_directory_argument, open_operation, parse_node_id
from chronik.cli.migration.import_runner import ProgressLine
from chronik.cli.output import print_json
from chronik.client.cluster import ClusterClient
from chronik.client.cluster_view import describe_partitions
from chronik.client.errors import ApiNotSupported, BrokerUnreachable, ClientError, ConnectionLost
from chronik.client.nodes import describe_nodes, describe_nodes_from_quorum, to_planned_node
from chronik.errors import ChronikError
from chronik.planning.shutdown_check import ShutdownObstacle, find_shutdown_obstacles
from chronik.planning.views import PlannedNode, join_words
from chronik.protocol.errors import KafkaError

EXIT_SAFE, EXIT_NOT_SAFE, EXIT_UNKNOWN = 0, 1, 2
"""Exit codes: the node can be stopped, it cannot be stopped, or the check itself failed."""

INTERRUPT_HINT: Final = "This command changes nothing."


def add_arguments(actions: Subparsers) -> None:
    parser = actions.add_parser(
        "ok-to-stop", help="check whether nodes can be stopped; exit code 1: no, 2: the check failed"
    )
    parser.add_argument(
        "nodes", type=parse_node_id, nargs="+", metavar="NODE", help="node to stop; several: at the same time"
    )
    parser.add_argument(
        "--wait", type=parse_positive_seconds, metavar="SECONDS", help="wait until the nodes can be stopped"
    )
    add_directory_argument(parser)
    add_json_argument(parser)
    add_client_arguments(parser, run)


def run(arguments: argparse.Namespace) -> int:
    try:
        return _run_ok_to_stop_check(arguments)
    except (ChronikError, OSError) as error:
        if arguments.debug:
            raise
        print(f"chronik: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_UNKNOWN


def _run_ok_to_stop_check(arguments: argparse.Namespace) -> int:
    progress = ProgressLine()
    try:
        with open_operation(arguments, INTERRUPT_HINT) as operation:
            reasons = wait_until_safe(
                lambda: _find_shutdown_obstacles(operation.cluster, arguments.nodes),
                arguments.wait or 0.0,
                progress.update,
            )
    finally:
        progress.close()
    if arguments.json:
        print_json(
            {"nodes": arguments.nodes, "ok": not reasons, "reasons": [_obstacle_to_json(reason) for reason in reasons]}
        )
    elif reasons:
        print(f"no: {'; '.join(reason.sentence for reason in reasons)}")
    else:
        which = f"node {arguments.nodes[0]}" if len(arguments.nodes) == 1 else f"nodes {join_words(arguments.nodes)}"
        print(f"{which} can be stopped: all partitions and the metadata quorum stay available")
    return EXIT_NOT_SAFE if reasons else EXIT_SAFE


def wait_until_safe(
    ask: Callable[[], tuple[ShutdownObstacle, ...]], seconds: float, tell: Callable[[str], None]
) -> tuple[ShutdownObstacle, ...]:
    """Wait until the node can be stopped safely or the timeout expires, and return the remaining obstacles.

    Retriable errors count as a reason. If the last poll failed with one, raise it; other errors are raised immediately.
    """
    deadline = time.monotonic() + seconds
    while True:
        failure = None
        try:
            reasons = ask()
            obstacle = reasons[0].sentence if reasons else ""
        except (ClientError, KafkaError) as error:
            if not _is_retriable(error):
                raise
            failure, obstacle = error, str(error)
        left = deadline - time.monotonic()
        if left <= 0 or not obstacle:
            if failure is not None:
                raise failure
            return reasons
        tell(f"not yet, {left:.0f} s left: {obstacle}")
        time.sleep(min(left, POLL_SECONDS))


def _is_retriable(error: ClientError | KafkaError) -> bool:
    if isinstance(error, KafkaError):
        return error.code.retriable
    return isinstance(error, BrokerUnreachable | ConnectionLost)


def _find_shutdown_obstacles(cluster: ClusterClient, nodes: list[int]) -> tuple[ShutdownObstacle, ...]:
    return find_shutdown_obstacles(list_all_nodes(cluster), describe_partitions(cluster), set(nodes))


def list_all_nodes(cluster: ClusterClient) -> list[PlannedNode]:
    """Return all nodes of the cluster, including a node that is being removed.

    It may still be a voter.

    During an upgrade some nodes do not support DescribeNodes; then Kafka's DescribeQuorum is used.
    """
    try:
        return [to_planned_node(node) for node in describe_nodes(cluster).nodes]
    except ApiNotSupported:
        return describe_nodes_from_quorum(cluster)


def _obstacle_to_json(reason: ShutdownObstacle) -> dict[str, object]:
    partitions = [{"topic": each.topic, "partition": each.index} for each in reason.partitions]
    return {"kind": reason.kind, "sentence": reason.sentence, "partitions": partitions}
