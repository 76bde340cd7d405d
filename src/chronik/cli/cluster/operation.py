"""Execution of a membership or reassignment plan: show it, ask for confirmation, execute the steps and wait for each.

The arguments and the connection that the administration commands share are defined here, too. The cluster commits a
step before the command waits for it, and completes the step even if the command is stopped. An interrupted command can
be run again to execute the remaining steps.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from chronik.cli.arguments import (
    CLIENT_ID,
    CommandRunner,
    InvalidInput,
    add_client_arguments,
    add_json_argument,
    connect_cluster,
    parse_positive_seconds,
)
from chronik.cli.cluster.local_nodes import load_nodes
from chronik.cli.output import print_json
from chronik.client.access.settings import BootstrapAccess
from chronik.client.cluster import ClusterClient
from chronik.client.cluster_view import ClusterState, describe_cluster_state
from chronik.client.errors import ClientError
from chronik.client.nodes import ONLINE_STATUSES, AlterNodesAction, AlterNodesChange, alter_nodes, describe_nodes
from chronik.client.partitions import PartitionReassignment as MoveUnderWay
from chronik.client.partitions import (
    clear_replication_throttle,
    elect_leaders,
    list_reassignments,
    reassign_partitions,
    set_replication_throttle,
)
from chronik.client.records import TopicPartition
from chronik.errors import ChronikError
from chronik.metadata.levels import DYNAMIC_MEMBERSHIP_LEVEL, FEATURE_NAME
from chronik.metadata.names import META_TOPIC
from chronik.planning.cluster_plans import ClusterPlan, describe_plan, plan_to_json
from chronik.planning.views import ReplicaMove
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_nodes import DescribedNode
from chronik.wording import pluralize

POLL_SECONDS: Final = 0.2
REASSIGNMENTS_PER_REQUEST_MAX: Final = 1000
"""Maximum number of partition reassignments in one AlterPartitionReassignments request."""

ELECTION_NOT_NEEDED_ERRORS: Final = (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
TOPIC_DELETED_ERRORS: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""Error codes of a request for a topic that was deleted concurrently."""

UNITS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}


class OperationTimeout(ChronikError):
    """An error after waiting too long for a cluster operation.

    The cluster still completes the steps that were already started.
    """


def print_plan(
    plan: ClusterPlan,
    arguments: argparse.Namespace,
    *,
    steps_before: Iterable[str] = (),
    steps_after: Iterable[str] = (),
) -> None:
    """Print the steps of a cluster operation, including local steps before and after them."""
    if arguments.json:
        print_json(plan_to_json(plan))
        return
    for number, step in enumerate([*steps_before, *describe_plan(plan), *steps_after], 1):
        print(f"  {number}. {step}")


def confirm_plan(arguments: argparse.Namespace) -> bool:
    """Ask the user to confirm the plan, unless `--yes` or `--dry-run` is used.

    Raise InvalidInput if stdin is closed.
    """
    if arguments.dry_run:
        if not arguments.json:
            print("Dry run: no changes were made.")
        return False
    if arguments.yes:
        return True
    print("Continue? [y/N] ", end="", flush=True)
    try:
        answer = input()
    except EOFError:
        print()
        raise InvalidInput(
            "no confirmation: stdin is closed; use --yes to execute the plan, or --dry-run to show it"
        ) from None
    if answer.strip().lower() in ("y", "yes"):
        return True
    print("No changes were made.")
    return False


class ClusterOperation:
    """An executor of maintenance steps on a cluster, such as draining or adding nodes.

    It waits for their completion, at most `wait_s` seconds in total.
    """

    def __init__(self, cluster: ClusterClient, wait_s: float | None, interrupt_hint: str) -> None:
        """Create the executor. `interrupt_hint` explains to the user what happens if the command is interrupted."""
        self.cluster = cluster
        self._deadline = None if wait_s is None else time.monotonic() + wait_s
        self.interrupt_hint = interrupt_hint
        self._hint_printed = False

    def view(self) -> ClusterState:
        return describe_cluster_state(self.cluster)

    def exclude_broker(self, node_id: int) -> None:
        """Stop sending requests to a removed broker, whose view of the cluster is outdated."""
        brokers = self.cluster.retry(lambda: self.cluster.metadata([])).brokers
        others = [f"{broker.host}:{broker.port}" for broker in brokers if broker.node_id != node_id]
        if others:
            self.cluster.close()
            self.cluster = ClusterClient(
                BootstrapAccess(",".join(others), self.cluster.security),
                client_id=CLIENT_ID,
                timeout_s=self.cluster.timeout_s,
            )

    # Steps

    def add_node(self, node_id: int, host: str, port: int) -> None:
        alter_nodes(self.cluster, [AlterNodesChange(AlterNodesAction.ADD, node_id, host, port)])
        print(f"node {node_id}: added; it joins when it is started", flush=True)

    def wait_until_joined(self, node_id: int, check: Callable[[], None] = lambda: None) -> None:
        """Wait until the node has joined the cluster.

        `check` raises an exception to stop waiting, such as after a crash.
        """

        def is_done(node: DescribedNode) -> bool:
            is_in = node.is_member and node.status in ONLINE_STATUSES
            if not is_in:
                check()
            return is_in

        self.wait_for_node(node_id, "joined: it follows the metadata log and can host replicas", is_done)

    def drain(self, node_id: int) -> None:
        alter_nodes(self.cluster, [AlterNodesChange(AlterNodesAction.DRAIN, node_id)])
        print(f"node {node_id}: drained", flush=True)

    def undrain_node(self, node_id: int) -> None:
        alter_nodes(self.cluster, [AlterNodesChange(AlterNodesAction.UNDRAIN, node_id)])
        print(f"node {node_id}: no longer drained", flush=True)

    def promote_node(self, node_id: int) -> None:
        alter_nodes(self.cluster, [AlterNodesChange(AlterNodesAction.PROMOTE, node_id)])
        self.wait_for_node(node_id, "promoted to voter", lambda node: node.is_voter)

    def demote_node(self, node_id: int) -> None:
        alter_nodes(self.cluster, [AlterNodesChange(AlterNodesAction.DEMOTE, node_id)])
        self.wait_for_node(node_id, "demoted to observer", lambda node: not node.is_voter)

    def remove_node(self, node_id: int) -> None:
        """Remove the node from the cluster, unless its removal is already in progress, and wait for completion."""
        if any(node.node_id == node_id and node.host for node in describe_nodes(self.cluster).nodes):
            alter_nodes(self.cluster, [AlterNodesChange(AlterNodesAction.REMOVE, node_id)])

        def missing() -> str | None:
            left = [node for node in describe_nodes(self.cluster).nodes if node.node_id == node_id]
            return f"node {node_id} is still a member" if left else None

        self.wait_until(missing)
        print(f"node {node_id}: removed from the cluster", flush=True)

    def set_throttle(self, moves: Iterable[ReplicaMove], bytes_per_s: int | None) -> None:
        """Limit the replication rate of partition reassignments, or remove the limit if the rate is None.

        Ongoing reassignments are included.
        """
        if bytes_per_s is None:
            self.clear_throttle()
            return
        topics = {move.partition.topic for move in moves}
        topics |= {move.partition.topic for move in list_reassignments(self.cluster)}
        set_replication_throttle(self.cluster, topics, bytes_per_s)

    def reassign_partitions(self, moves: Sequence[ReplicaMove]) -> None:
        """Reassign partitions, wait until the reassignments are complete, and elect the preferred leaders."""
        if not moves:
            return
        for start in range(0, len(moves), REASSIGNMENTS_PER_REQUEST_MAX):
            chunk = moves[start : start + REASSIGNMENTS_PER_REQUEST_MAX]
            _raise_first_error(
                reassign_partitions(self.cluster, {_to_topic_partition(move): move.replicas for move in chunk}),
                TOPIC_DELETED_ERRORS,
            )
        keys = {_to_topic_partition(move) for move in moves}
        self.wait_for_reassignments(lambda move: move.partition in keys)
        led = [key for key in sorted(keys) if key.topic != META_TOPIC]
        errors = {key: error for key, error in elect_leaders(self.cluster, led).items() if error is not None}
        _raise_first_error(errors, (*TOPIC_DELETED_ERRORS, *ELECTION_NOT_NEEDED_ERRORS))

    def wait_for_reassignments(self, matches: Callable[[MoveUnderWay], bool]) -> None:
        """Wait until no matching partition reassignment is in progress.

        Print the remaining number whenever it changes.
        """
        last_count = 0

        def missing() -> str | None:
            nonlocal last_count
            left = sum(map(matches, list_reassignments(self.cluster)))
            progress = f"{pluralize(left, 'partition')} being reassigned"
            if left not in (0, last_count):
                print(progress, flush=True)
            last_count = left
            return progress if left else None

        self.wait_until(missing)

    def clear_throttle(self) -> None:
        if clear_replication_throttle(self.cluster):
            print("replication throttle removed", flush=True)

    # Waiting

    def wait_for_node(self, node_id: int, what: str, is_done: Callable[[DescribedNode], bool]) -> None:
        """Wait until a node's status satisfies a condition; raise OperationTimeout after the deadline."""

        def missing() -> str | None:
            for node in describe_nodes(self.cluster).nodes:
                if node.node_id == node_id:
                    state = f"status {node.status}" if node.is_member else "not admitted yet"
                    return None if is_done(node) else f"node {node_id}: {state}"
            return f"node {node_id} is not in the cluster"

        self.wait_until(missing)
        print(f"node {node_id}: {what}", flush=True)

    def wait_until(self, missing: Callable[[], str | None]) -> None:
        """Poll the cluster until a condition is met.

        Connection errors and retriable Kafka errors count as not met.

        Args:
            missing: Returns what is still missing, or None.

        Raises:
            OperationTimeout: The wait timeout has expired.
        """
        why: str | None = "started just now"
        try:
            while (why := _poll(missing)) is not None:
                self._print_interrupt_hint_once()
                if self._deadline is not None and time.monotonic() > self._deadline:
                    raise OperationTimeout(f"timed out: {why}. {self.interrupt_hint}")
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            print(f"\nInterrupted: {why}. {self.interrupt_hint}", file=sys.stderr)
            raise

    def _print_interrupt_hint_once(self) -> None:
        if not self._hint_printed:
            print(f"(waiting. {self.interrupt_hint})", flush=True)
        self._hint_printed = True


def _poll(missing: Callable[[], str | None]) -> str | None:
    try:
        return missing()
    except ClientError as error:
        return str(error)
    except KafkaError as error:
        if not error.code.retriable:
            raise
        return error.message


def _to_topic_partition(move: ReplicaMove) -> TopicPartition:
    return TopicPartition(move.partition.topic, move.partition.index)


def _raise_first_error(
    errors_by_partition: Mapping[TopicPartition, KafkaError], harmless: Collection[ErrorCode]
) -> None:
    """Raise the first Kafka error whose code is not in `harmless`.

    Its message includes the number of further errors.
    """
    serious = {key: error for key, error in errors_by_partition.items() if error.code not in harmless}
    if serious:
        first, error = next(iter(serious.items()))
        more = f" (and {len(serious) - 1} more)" if len(serious) > 1 else ""
        raise KafkaError(error.code, f"{first}: {error.message}{more}")


def add_operator_arguments(parser: argparse.ArgumentParser, run: CommandRunner, *, has_throttle: bool = False) -> None:
    add_directory_argument(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="show the plan without executing it")
    parser.add_argument(
        "--wait",
        type=parse_positive_seconds,
        metavar="SECONDS",
        help="maximum time to wait (default: until it is done)",
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


def check_conflicting_options(arguments: argparse.Namespace) -> None:
    """Raise InvalidInput if command-line options exclude each other."""
    if arguments.json and not (arguments.yes or arguments.dry_run):
        raise InvalidInput("--json cannot ask for confirmation: use --yes or --dry-run")


def require_membership_changes(view: ClusterState) -> ClusterState:
    """Raise InvalidInput if the cluster's nodes cannot be changed, otherwise return its state unchanged."""
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
    """Return the description of a node, even if it is being removed; None if it is not a member."""
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
