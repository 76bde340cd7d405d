"""Carries plans out: shows, asks, does one step after the other, and waits until each is true.

A step is agreed on by the cluster before it is waited for, and goes on without the one who waits. So a command that is
stopped leaves nothing half done, and run again it does the rest.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from chronik.cli.arguments import CLIENT_ID, WrongInput
from chronik.cli.output import print_json
from chronik.client.access.settings import Access
from chronik.client.cluster import Cluster
from chronik.client.cluster_views import ClusterView, view_cluster
from chronik.client.errors import ClientError
from chronik.client.nodes import PRESENT, Action, NodeChange, alter_nodes, describe_nodes
from chronik.client.partitions import Move as MoveUnderWay
from chronik.client.partitions import elect_leaders, list_reassignments, reassign_partitions
from chronik.client.records import TopicPartition
from chronik.client.throttle import clear_throttle, set_throttle
from chronik.errors import ChronikError
from chronik.metadata.names import META_TOPIC
from chronik.planning.changes import Plan
from chronik.planning.plans_shown import as_json, shown
from chronik.planning.views import Move
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.describe_nodes import DescribedNode
from chronik.wording import counted

POLL_SECONDS: Final = 0.2
MOVES_PER_REQUEST_MAX: Final = 1000
"""Each is some bytes of one command, which the cluster has to agree on as a whole."""

NOT_NEEDED: Final = (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
GONE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""The topic was deleted meanwhile."""


class NotDoneYet(ChronikError):
    """The time that the user gives is up; what was begun goes on."""


def show(plan: Plan, arguments: argparse.Namespace, *, first: Iterable[str] = (), at_last: Iterable[str] = ()) -> None:
    """Prints the plan, and what is done on this machine before and after."""
    if arguments.json:
        print_json(as_json(plan))
        return
    for number, step in enumerate([*first, *shown(plan), *at_last], 1):
        print(f"  {number}. {step}")


def is_agreed(arguments: argparse.Namespace) -> bool:
    """Asks whether to go on, unless `--yes` or `--dry-run` say it. Raises WrongInput where nobody can answer."""
    if arguments.dry_run:
        if not arguments.json:
            print("Nothing was changed.")
        return False
    if arguments.yes:
        return True
    print("Go on? [y/N] ", end="", flush=True)
    try:
        answer = input()
    except EOFError:
        print()
        raise WrongInput("nobody is there to say yes: --yes says it, and --dry-run only shows the plan") from None
    if answer.strip().lower() in ("y", "yes"):
        return True
    print("Nothing was changed.")
    return False


class Operation:
    """Takes steps and waits for them, `wait_s` seconds in all at most."""

    def __init__(self, cluster: Cluster, wait_s: float | None, if_stopped: str) -> None:
        """`if_stopped` says what it means to stop the command while it waits."""
        self.cluster = cluster
        self._deadline = None if wait_s is None else time.monotonic() + wait_s
        self.if_stopped = if_stopped
        self._is_told = False

    def view(self) -> ClusterView:
        return view_cluster(self.cluster)

    def avoid(self, node_id: int) -> None:
        """Asks other brokers from now on: one that has left the cluster knows nothing of it any more."""
        brokers = self.cluster.retrying(lambda: self.cluster.metadata([])).brokers
        others = [f"{broker.host}:{broker.port}" for broker in brokers if broker.node_id != node_id]
        if others:
            self.cluster.close()
            self.cluster = Cluster(
                Access(",".join(others), self.cluster.security), client_id=CLIENT_ID, timeout_s=self.cluster.timeout_s
            )

    # Steps

    def add(self, node_id: int, host: str, port: int) -> None:
        alter_nodes(self.cluster, [NodeChange(Action.ADD, node_id, host, port)])
        print(f"node {node_id} is added; it is let in when it runs", flush=True)

    def wait_until_in(self, node_id: int, check: Callable[[], None] = lambda: None) -> None:
        """`check` raises when there is no more reason to wait for it."""

        def is_so(node: DescribedNode) -> bool:
            is_in = node.is_member and node.status in PRESENT
            if not is_in:
                check()
            return is_in

        self.wait_for_node(node_id, "is in: it follows the others, and can hold replicas", is_so)

    def drain(self, node_id: int) -> None:
        alter_nodes(self.cluster, [NodeChange(Action.DRAIN, node_id)])
        print(f"node {node_id} is drained", flush=True)

    def undrain(self, node_id: int) -> None:
        alter_nodes(self.cluster, [NodeChange(Action.UNDRAIN, node_id)])
        print(f"node {node_id} is not drained any more", flush=True)

    def promote(self, node_id: int) -> None:
        alter_nodes(self.cluster, [NodeChange(Action.PROMOTE, node_id)])
        self.wait_for_node(node_id, "votes", lambda node: node.is_voter)

    def demote(self, node_id: int) -> None:
        alter_nodes(self.cluster, [NodeChange(Action.DEMOTE, node_id)])
        self.wait_for_node(node_id, "does not vote any more", lambda node: not node.is_voter)

    def remove(self, node_id: int) -> None:
        """One that is on its way out already is waited for."""
        if any(node.node_id == node_id and node.host for node in describe_nodes(self.cluster).nodes):
            alter_nodes(self.cluster, [NodeChange(Action.REMOVE, node_id)])

        def missing() -> str | None:
            left = [node for node in describe_nodes(self.cluster).nodes if node.node_id == node_id]
            return f"node {node_id} is still a member" if left else None

        self.wait_until(missing)
        print(f"node {node_id} is out of the cluster", flush=True)

    def throttle(self, moves: Iterable[Move], bytes_per_s: int | None) -> None:
        """Sets how fast these may be copied, and what is on its way already. None ends what was set before."""
        if bytes_per_s is None:
            self.clear_throttle()
            return
        topics = {move.partition.topic for move in moves}
        topics |= {move.partition.topic for move in list_reassignments(self.cluster)}
        set_throttle(self.cluster, topics, bytes_per_s)

    def move(self, moves: Sequence[Move]) -> None:
        """Returns when all partitions are where they are to be, and led by whom they prefer."""
        if not moves:
            return
        for start in range(0, len(moves), MOVES_PER_REQUEST_MAX):
            some = moves[start : start + MOVES_PER_REQUEST_MAX]
            _raise_for(reassign_partitions(self.cluster, {_key(move): move.replicas for move in some}), GONE)
        keys = {_key(move) for move in moves}
        self.wait_for_moves(lambda move: move.partition in keys)
        led = [key for key in sorted(keys) if key.topic != META_TOPIC]
        errors = {key: error for key, error in elect_leaders(self.cluster, led).items() if error is not None}
        _raise_for(errors, (*GONE, *NOT_NEEDED))

    def wait_for_moves(self, is_meant: Callable[[MoveUnderWay], bool]) -> None:
        """Tells how many partitions are on their way whenever that changes."""
        told = 0

        def missing() -> str | None:
            nonlocal told
            left = sum(map(is_meant, list_reassignments(self.cluster)))
            way = f"{counted(left, 'partition')} on the way"
            if left not in (0, told):
                print(way, flush=True)
            told = left
            return way if left else None

        self.wait_until(missing)

    def clear_throttle(self) -> None:
        if clear_throttle(self.cluster):
            print("moves are not throttled any more", flush=True)

    # Waiting

    def wait_for_node(self, node_id: int, what: str, is_so: Callable[[DescribedNode], bool]) -> None:
        """Raises NotDoneYet."""

        def missing() -> str | None:
            for node in describe_nodes(self.cluster).nodes:
                if node.node_id == node_id:
                    state = f"it is {node.status}" if node.is_member else "it was not let in yet"
                    return None if is_so(node) else f"node {node_id}: {state}"
            return f"node {node_id} is not in the cluster"

        self.wait_until(missing)
        print(f"node {node_id} {what}", flush=True)

    def wait_until(self, missing: Callable[[], str | None]) -> None:
        """Asks until nothing is missing; that nobody answers is one more reason to wait. Raises NotDoneYet."""
        why: str | None = "it has just begun"
        try:
            while (why := _asked(missing)) is not None:
                self._tell_once()
                if self._deadline is not None and time.monotonic() > self._deadline:
                    raise NotDoneYet(f"not done yet: {why}. {self.if_stopped}")
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            print(f"\nNot done yet: {why}. {self.if_stopped}", file=sys.stderr)
            raise

    def _tell_once(self) -> None:
        if not self._is_told:
            print(f"(waiting. {self.if_stopped})", flush=True)
        self._is_told = True


def _asked(missing: Callable[[], str | None]) -> str | None:
    try:
        return missing()
    except ClientError as error:
        return str(error)
    except KafkaError as error:
        if not error.code.retriable:
            raise
        return error.message


def _key(move: Move) -> TopicPartition:
    return TopicPartition(move.partition.topic, move.partition.index)


def _raise_for(refused: Mapping[TopicPartition, KafkaError], harmless: Collection[ErrorCode]) -> None:
    """Raises the first of them, which tells of the others."""
    harmful = {key: error for key, error in refused.items() if error.code not in harmless}
    if harmful:
        first, error = next(iter(harmful.items()))
        more = f" (and {len(harmful) - 1} more)" if len(harmful) > 1 else ""
        raise KafkaError(error.code, f"{first}: {error.message}{more}")
