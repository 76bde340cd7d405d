"""`chronik cluster add-node`, `remove-node` and `replace-node`: membership changes of a running cluster."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from chronik.cli.arguments import Actions, WrongInput
from chronik.cli.cluster.carrying_out import Operation, is_agreed, show
from chronik.cli.cluster.local_growth import check_running, local_node, next_node_id, planned_node, retire, start
from chronik.cli.cluster.local_nodes import LocalNode
from chronik.cli.cluster.operators import add_operator_arguments, checked, described, grown, node_id, operating
from chronik.cli.output import numbers
from chronik.client.cluster_views import ClusterView
from chronik.config import Address
from chronik.planning.changes import Plan, plan_addition, plan_removal, plan_replacement
from chronik.planning.moving import leave, take_over
from chronik.planning.views import Move, NodeView, PartitionView

ReassignmentPlanner = Callable[[Sequence[NodeView], Sequence[PartitionView]], tuple[Move, ...]]

ADD_INTERRUPT_HINT: Final = (
    "If this command is stopped, the node still joins when it is started; run it again to wait for the node."
    " chronik cluster remove-node reverts it."
)
REMOVE_INTERRUPT_HINT: Final = (
    "If this command is stopped, the reassignments continue and the node stays drained; run it again to finish."
    " To abort: chronik cluster rebalance --cancel, and chronik cluster undrain."
)


def add_arguments(actions: Actions) -> None:
    add = actions.add_parser("add-node", help="add a node that hosts replicas but has no vote")
    add.add_argument(
        "node", type=node_id, nargs="?", metavar="NODE", help="id of the new node (with --dir: the next free id)"
    )
    _add_new_node_arguments(add)
    add_operator_arguments(add, run_add_node)

    remove = actions.add_parser("remove-node", help="move all replicas off a node, and remove it from the cluster")
    remove.add_argument("node", type=node_id, metavar="NODE")
    add_operator_arguments(remove, run_remove_node, moves=True)

    replacement = actions.add_parser("replace-node", help="replace a node by a new one, with its replicas and its vote")
    replacement.add_argument("node", type=node_id, metavar="OLD")
    replacement.add_argument(
        "new", type=node_id, nargs="?", metavar="NEW", help="id of the new node (with --dir: the next free id)"
    )
    _add_new_node_arguments(replacement)
    add_operator_arguments(replacement, run_replace_node, moves=True)


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
    checked(arguments)
    with operating(arguments, ADD_INTERRUPT_HINT, arguments.wait) as operation:
        view = grown(operation.view())
        new = _NewNode(arguments, arguments.node, view)
        plan = plan_addition(view.nodes, new.id)
        if new.has_moved:
            plan = replace(plan, adds=new.id)
        if plan.is_empty and not arguments.json:
            print(f"node {new.id} is already a member of the cluster")
        else:
            show(plan, arguments, first=new.steps())
        if not plan.is_empty and not is_agreed(arguments):
            return 0
        if not arguments.dry_run:
            _admit(operation, new, plan)
    return 0


class _NewNode:
    """A node to be added, local or remote; raise InvalidInput if its id or address is missing."""

    def __init__(self, arguments: argparse.Namespace, wanted: int | None, view: ClusterView) -> None:
        self.local: LocalNode | None = None
        if wanted is None and arguments.dir is None:
            raise WrongInput("no node given: NODE is required without --dir")
        known = [node.node_id for node in view.described.nodes]
        self.id: int = next_node_id(arguments.dir, known) if wanted is None else wanted
        self._rack: str | None = arguments.rack
        self._known = described(view, self.id)
        if self._known is not None and not self._known.host:
            raise WrongInput(f"node {self.id} is being removed from the cluster: wait until it is removed")
        if arguments.dir is not None:
            votes = {node.id: node.meant_to_vote for node in view.nodes}
            found = local_node(arguments.dir, self.id)
            self.local = found or planned_node(arguments.dir, self.id, arguments.rack, votes)
            self.raft: Address = self.local.addresses()["raft"]
        elif arguments.raft is not None:
            self.raft = arguments.raft
        elif self._known is not None:
            self.raft = Address(self._known.host, self._known.port)
        else:
            raise WrongInput(f"the peer address of node {self.id} is unknown: use --raft HOST:PORT or --dir DIR")

    @property
    def has_moved(self) -> bool:
        return self._known is not None and (self._known.host, self._known.port) != self.raft

    @property
    def view(self) -> NodeView:
        return NodeView(self.id, self._rack, is_member=False)

    def steps(self) -> Iterator[str]:
        if self.local is not None and self.local.pid() is None:
            yield f"start node {self.id}"


def _admit(operation: Operation, new: _NewNode, plan: Plan) -> None:
    process = start(new.local) if new.local is not None else None
    if plan.adds is not None:
        operation.add(new.id, *new.raft)
        if new.local is None:
            print(_format_start_instructions(operation.view(), new.id), flush=True)
    check = partial(check_running, new.local, process) if new.local is not None else lambda: None
    operation.wait_until_in(new.id, check)
    for each in plan.promotes:
        operation.promote(each)


def _format_start_instructions(view: ClusterView, new: int) -> str:
    peers = [node for node in view.described.nodes if node.host and node.node_id != new]
    known = ", ".join(f"{node.node_id} at {node.host}:{node.port}" for node in peers)
    return (
        f"start it with node_id = {new}, an empty data_dir, the cluster's cluster_secret,"
        f" and [[peers]] that list it (voter = false) and some existing nodes: {known}"
    )


# Removing and replacing


def run_remove_node(arguments: argparse.Namespace) -> int:
    checked(arguments)
    with operating(arguments, REMOVE_INTERRUPT_HINT, arguments.wait) as operation:
        view = grown(operation.view())
        local = local_node(arguments.dir, arguments.node) if arguments.dir is not None else None
        node = described(view, arguments.node)
        if node is None and local is None:
            known = numbers(each.id for each in view.nodes)
            raise WrongInput(f"node {arguments.node} is not in this cluster; its nodes are {known}")
        plan = Plan()
        if node is not None:
            plan = plan_removal(view.nodes, view.partitions, node.node_id) if node.host else Plan(removes=node.node_id)
        show(plan, arguments, at_last=_stop_step(local))
        if not is_agreed(arguments):
            return 0
        _remove(operation, plan, partial(leave, leaving=arguments.node), arguments)
    if local is not None:
        retire(local)
    return 0


def run_replace_node(arguments: argparse.Namespace) -> int:
    checked(arguments)
    with operating(arguments, REMOVE_INTERRUPT_HINT, arguments.wait) as operation:
        view = grown(operation.view())
        local = local_node(arguments.dir, arguments.node) if arguments.dir is not None else None
        old = described(view, arguments.node)
        if old is None or not old.host:
            return run_remove_node(arguments)  # already removed or being removed; its process may still run
        new = _NewNode(arguments, arguments.new, view)
        command = f"chronik cluster replace-node {arguments.node} {new.id}"
        operation.if_stopped = REMOVE_INTERRUPT_HINT.replace("run it again", f"run {command}")
        plan = plan_replacement(view.nodes, view.partitions, arguments.node, new.view)
        show(plan, arguments, first=new.steps(), at_last=_stop_step(local))
        if not is_agreed(arguments):
            return 0
        _admit(operation, new, replace(plan, promotes=()))
        # The rack of the new node is known only after it has joined.
        moves = partial(take_over, leaving=arguments.node, substitute=new.id)
        view = operation.view()
        _remove(operation, replace(plan, moves=moves(view.nodes, view.partitions)), moves, arguments)
    if local is not None:
        retire(local)
    return 0


def _stop_step(local: LocalNode | None) -> Sequence[str]:
    return [f"stop node {local.id}"] if local is not None and local.pid() is not None else []


def _remove(operation: Operation, plan: Plan, plan_more: ReassignmentPlanner, arguments: argparse.Namespace) -> None:
    if plan.removes is None:
        return
    operation.avoid(plan.removes)
    if plan.drains is not None:
        operation.drain(plan.drains)
    for each in plan.promotes:
        operation.promote(each)
    moves = plan.moves
    operation.throttle(moves, arguments.throttle)
    while moves:
        operation.move(moves)
        view = operation.view()
        moves = plan_more(view.nodes, view.partitions)  # a topic may have been created before the node was drained
    operation.wait_for_moves(lambda move: plan.removes in move.removing)
    operation.clear_throttle()
    for each in plan.demotes:
        operation.demote(each)
    operation.remove(plan.removes)
