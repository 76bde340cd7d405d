"""`chronik cluster add-node`, `remove-node` and `replace-node`: membership changes of a running cluster."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from chronik.cli.arguments import InvalidInput, Subparsers
from chronik.cli.cluster.local_nodes import (
    LocalNode,
    check_process_running,
    choose_next_node_id,
    find_local_node,
    plan_local_node,
    retire_node,
    start_node,
)
from chronik.cli.cluster.operation import (
    ClusterOperation,
    add_operator_arguments,
    check_conflicting_options,
    confirm_plan,
    find_described_node,
    open_operation,
    parse_node_id,
    print_plan,
    require_membership_changes,
)
from chronik.cli.output import join_ids
from chronik.client.cluster_view import ClusterState
from chronik.config import Address
from chronik.planning.cluster_plans import ClusterPlan, plan_addition, plan_removal, plan_replacement
from chronik.planning.replica_moves import plan_evacuation, plan_takeover
from chronik.planning.views import PlannedNode, PlannedPartition, ReplicaMove

ReassignmentPlanner = Callable[[Sequence[PlannedNode], Sequence[PlannedPartition]], tuple[ReplicaMove, ...]]

ADD_INTERRUPT_HINT: Final = (
    "If this command is stopped, the node still joins when it is started; run it again to wait for the node."
    " chronik cluster remove-node reverts it."
)
REMOVE_INTERRUPT_HINT: Final = (
    "If this command is stopped, the reassignments continue and the node stays drained; run it again to finish."
    " To abort: chronik cluster rebalance --cancel, and chronik cluster undrain."
)


def add_arguments(actions: Subparsers) -> None:
    add = actions.add_parser("add-node", help="add a node that hosts replicas but has no vote")
    add.add_argument(
        "node", type=parse_node_id, nargs="?", metavar="NODE", help="id of the new node (with --dir: the next free id)"
    )
    _add_new_node_arguments(add)
    add_operator_arguments(add, run_add_node)

    remove = actions.add_parser("remove-node", help="move all replicas off a node, and remove it from the cluster")
    remove.add_argument("node", type=parse_node_id, metavar="NODE", help="id of the node to remove")
    add_operator_arguments(remove, run_remove_node, has_throttle=True)

    replacement = actions.add_parser("replace-node", help="replace a node by a new one, with its replicas and its vote")
    replacement.add_argument("node", type=parse_node_id, metavar="OLD", help="id of the node to replace")
    replacement.add_argument(
        "new", type=parse_node_id, nargs="?", metavar="NEW", help="id of the new node (with --dir: the next free id)"
    )
    _add_new_node_arguments(replacement)
    add_operator_arguments(replacement, run_replace_node, has_throttle=True)


def _add_new_node_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--raft", type=_parse_address, metavar="HOST:PORT", help="address for peers (without --dir)")
    parser.add_argument("--rack", metavar="NAME", help="rack of the new node")


def _parse_address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {error}") from None


# Adding


def run_add_node(arguments: argparse.Namespace) -> int:
    check_conflicting_options(arguments)
    with open_operation(arguments, ADD_INTERRUPT_HINT, arguments.wait) as operation:
        view = require_membership_changes(operation.view())
        new = _NewNode(arguments, arguments.node, view)
        plan = plan_addition(view.nodes, new.id)
        if new.has_new_address:
            plan = replace(plan, adds=new.id)
        if plan.is_empty and not arguments.json:
            print(f"node {new.id} is already a member of the cluster")
        else:
            print_plan(plan, arguments, steps_before=new.steps())
        if not plan.is_empty and not confirm_plan(arguments):
            return 0
        if not arguments.dry_run:
            _admit_node(operation, new, plan)
    return 0


class _NewNode:
    """A local or remote node that `chronik cluster add-node` adds.

    The constructor raises InvalidInput if the id or address is missing.
    """

    def __init__(self, arguments: argparse.Namespace, wanted: int | None, view: ClusterState) -> None:
        self.local: LocalNode | None = None
        if wanted is None and arguments.dir is None:
            raise InvalidInput("no node given: NODE is required without --dir")
        known = [node.node_id for node in view.described.nodes]
        self.id: int = choose_next_node_id(arguments.dir, known) if wanted is None else wanted
        self._rack: str | None = arguments.rack
        self._known = find_described_node(view, self.id)
        if self._known is not None and not self._known.host:
            raise InvalidInput(f"node {self.id} is being removed from the cluster: wait until it is removed")
        if arguments.dir is not None:
            votes = {node.id: node.should_vote for node in view.nodes}
            found = find_local_node(arguments.dir, self.id)
            self.local = found or plan_local_node(arguments.dir, self.id, arguments.rack, votes)
            self.raft: Address = self.local.list_addresses()["raft"]
        elif arguments.raft is not None:
            self.raft = arguments.raft
        elif self._known is not None:
            self.raft = Address(self._known.host, self._known.port)
        else:
            raise InvalidInput(f"the peer address of node {self.id} is unknown: use --raft HOST:PORT or --dir DIR")

    @property
    def has_new_address(self) -> bool:
        return self._known is not None and (self._known.host, self._known.port) != self.raft

    @property
    def view(self) -> PlannedNode:
        return PlannedNode(self.id, self._rack, is_member=False)

    def steps(self) -> Iterator[str]:
        if self.local is not None and self.local.pid() is None:
            yield f"start node {self.id}"


def _admit_node(operation: ClusterOperation, new: _NewNode, plan: ClusterPlan) -> None:
    process = start_node(new.local) if new.local is not None else None
    if plan.adds is not None:
        operation.add_node(new.id, *new.raft)
        if new.local is None:
            print(_format_start_instructions(operation.view(), new.id), flush=True)
    check = partial(check_process_running, new.local, process) if new.local is not None else lambda: None
    operation.wait_until_joined(new.id, check)
    for each in plan.promotes:
        operation.promote_node(each)


def _format_start_instructions(view: ClusterState, new: int) -> str:
    peers = [node for node in view.described.nodes if node.host and node.node_id != new]
    known = ", ".join(f"{node.node_id} at {node.host}:{node.port}" for node in peers)
    return (
        f"start it with node_id = {new}, an empty data_dir, the cluster's cluster_secret,"
        f" and [[peers]] that list it (voter = false) and some existing nodes: {known}"
    )


# Removing and replacing


def run_remove_node(arguments: argparse.Namespace) -> int:
    check_conflicting_options(arguments)
    with open_operation(arguments, REMOVE_INTERRUPT_HINT, arguments.wait) as operation:
        view = require_membership_changes(operation.view())
        local = find_local_node(arguments.dir, arguments.node) if arguments.dir is not None else None
        node = find_described_node(view, arguments.node)
        if node is None and local is None:
            known = join_ids(each.id for each in view.nodes)
            raise InvalidInput(f"node {arguments.node} is not in this cluster; its nodes are {known}")
        plan = ClusterPlan()
        if node is not None:
            plan = (
                plan_removal(view.nodes, view.partitions, node.node_id)
                if node.host
                else ClusterPlan(removes=node.node_id)
            )
        print_plan(plan, arguments, steps_after=_describe_stop_step(local))
        if not confirm_plan(arguments):
            return 0
        _remove_node(operation, plan, partial(plan_evacuation, leaving=arguments.node), arguments)
    if local is not None:
        retire_node(local)
    return 0


def run_replace_node(arguments: argparse.Namespace) -> int:
    check_conflicting_options(arguments)
    with open_operation(arguments, REMOVE_INTERRUPT_HINT, arguments.wait) as operation:
        view = require_membership_changes(operation.view())
        local = find_local_node(arguments.dir, arguments.node) if arguments.dir is not None else None
        old = find_described_node(view, arguments.node)
        if old is None or not old.host:
            return run_remove_node(arguments)  # already removed or being removed; its process may still run
        new = _NewNode(arguments, arguments.new, view)
        command = f"chronik cluster replace-node {arguments.node} {new.id}"
        operation.interrupt_hint = REMOVE_INTERRUPT_HINT.replace("run it again", f"run {command}")
        plan = plan_replacement(view.nodes, view.partitions, arguments.node, new.view)
        print_plan(plan, arguments, steps_before=new.steps(), steps_after=_describe_stop_step(local))
        if not confirm_plan(arguments):
            return 0
        _admit_node(operation, new, replace(plan, promotes=()))
        # The rack of the new node is known only after it has joined.
        moves = partial(plan_takeover, leaving=arguments.node, substitute=new.id)
        view = operation.view()
        _remove_node(operation, replace(plan, moves=moves(view.nodes, view.partitions)), moves, arguments)
    if local is not None:
        retire_node(local)
    return 0


def _describe_stop_step(local: LocalNode | None) -> Sequence[str]:
    return [f"stop node {local.id}"] if local is not None and local.pid() is not None else []


def _remove_node(
    operation: ClusterOperation, plan: ClusterPlan, plan_more: ReassignmentPlanner, arguments: argparse.Namespace
) -> None:
    if plan.removes is None:
        return
    operation.exclude_broker(plan.removes)
    if plan.drains is not None:
        operation.drain(plan.drains)
    for each in plan.promotes:
        operation.promote_node(each)
    moves = plan.moves
    operation.set_throttle(moves, arguments.throttle)
    while moves:
        operation.reassign_partitions(moves)
        view = operation.view()
        moves = plan_more(view.nodes, view.partitions)  # a topic may have been created before the node was drained
    operation.wait_for_reassignments(lambda move: plan.removes in move.removing)
    operation.clear_throttle()
    for each in plan.demotes:
        operation.demote_node(each)
    operation.remove_node(plan.removes)
