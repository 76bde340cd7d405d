"""`chronik cluster drain`, `undrain`, `promote`, `demote` and `rebalance`: node roles and partition balance."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from chronik.cli.arguments import Subparsers
from chronik.cli.cluster.operation import (
    ClusterOperation,
    add_operator_arguments,
    check_conflicting_options,
    confirm_plan,
    open_operation,
    parse_node_id,
    print_plan,
    require_membership_changes,
)
from chronik.cli.output import print_json
from chronik.client.partitions import list_reassignments, reassign_partitions
from chronik.planning.cluster_plans import (
    ClusterPlan,
    plan_demotion,
    plan_drain,
    plan_promotion,
    plan_rebalancing,
    plan_undrain,
)
from chronik.planning.views import PlannedNode, format_partitions
from chronik.wording import pluralize

PLANNERS: Final = {"drain": plan_drain, "undrain": plan_undrain, "promote": plan_promotion, "demote": plan_demotion}
NOTHING_TO_DO: Final = {
    "drain": "node {} is already drained",
    "undrain": "node {} is not drained",
    "promote": "node {} is already a voter, or is being promoted",
    "demote": "node {} is not a voter",
}
INTERRUPT_HINTS: Final = {
    "drain": "The node stays drained if this command is stopped; chronik cluster undrain reverts it.",
    "undrain": "The node stays undrained if this command is stopped; chronik cluster drain reverts it.",
    "promote": "If this command is stopped, the node still becomes a voter when it has caught up; chronik cluster"
    " demote reverts it.",
    "demote": "The node is demoted even if this command is stopped; chronik cluster promote reverts it.",
}
REBALANCE_INTERRUPT_HINT: Final = (
    "If this command is stopped, the reassignments continue with the current throttle. Run it again to wait for them"
    " and to remove the throttle, or with --cancel to cancel them."
)


def add_arguments(actions: Subparsers) -> None:
    helps = {
        "drain": "move the leaderships of a node away, and assign no new replicas to it until it is undrained",
        "undrain": "allow a drained node to lead partitions again",
        "promote": "make a node a voter of the metadata quorum",
        "demote": "make a voter an observer, which follows without a vote",
    }
    for name, about in helps.items():
        parser = actions.add_parser(name, help=about)
        parser.add_argument("node", type=parse_node_id, metavar="NODE", help="id of the node")
        parser.set_defaults(action=name)
        add_operator_arguments(parser, run_node_change)

    rebalance = actions.add_parser("rebalance", help="balance replicas and leaders across nodes and racks")
    rebalance.add_argument("--cancel", action="store_true", help="cancel all ongoing reassignments")
    add_operator_arguments(rebalance, run_rebalance, has_throttle=True)


def run_node_change(arguments: argparse.Namespace) -> int:
    check_conflicting_options(arguments)
    with open_operation(arguments, INTERRUPT_HINTS[arguments.action], arguments.wait) as operation:
        plan = PLANNERS[arguments.action](require_membership_changes(operation.view()).nodes, arguments.node)
        if plan.is_empty and not arguments.json:
            print(NOTHING_TO_DO[arguments.action].format(arguments.node))
        else:
            print_plan(plan, arguments)
        if not plan.is_empty and not confirm_plan(arguments):
            return 0
        if not arguments.dry_run:
            _execute_plan(operation, plan)
    return 0


def _execute_plan(operation: ClusterOperation, plan: ClusterPlan) -> None:
    if plan.drains is not None:
        operation.drain(plan.drains)
        _wait_until_drained(operation, plan.drains)
    if plan.undrains is not None:
        operation.undrain_node(plan.undrains)
    for each in plan.promotes:
        operation.promote_node(each)
    for each in plan.demotes:
        operation.demote_node(each)


def _wait_until_drained(operation: ClusterOperation, drained: int) -> None:
    """Wait until the drained node leads no partitions.

    Report partitions that no other node can lead.
    """

    def missing() -> str | None:
        view = operation.view()
        eligible = {node.id for node in view.nodes if node.can_receive_replicas}
        led = [each for each in view.partitions if each.leader == drained]
        if waiting := [each for each in led if eligible & set(each.in_sync)]:
            return f"node {drained} leads {format_partitions(waiting)}"
        if led:
            print(
                f"node {drained} still leads {pluralize(len(led), 'partition')} that no other node can lead: "
                f"{format_partitions(led)}"
            )
        return None

    operation.wait_until(missing)


def run_rebalance(arguments: argparse.Namespace) -> int:
    check_conflicting_options(arguments)
    with open_operation(arguments, REBALANCE_INTERRUPT_HINT, arguments.wait) as operation:
        if arguments.cancel:
            return _cancel_reassignments(operation, arguments)
        view = require_membership_changes(operation.view())
        plan = plan_rebalancing(view.nodes, view.partitions)
        under_way = sum(bool(each.leaving) for each in view.partitions)
        if not arguments.json:
            _print_skipped_nodes(view.nodes)
        if plan.is_empty and not arguments.json:
            print("the cluster is balanced: no partitions need to move")
        else:
            print_plan(plan, arguments)
        if not plan.is_empty and not confirm_plan(arguments):
            return 0
        if arguments.dry_run:
            return 0
        if under_way and plan.is_empty:
            print(f"{pluralize(under_way, 'partition')} of an earlier command still being reassigned")
        operation.set_throttle(plan.moves, arguments.throttle)
        operation.reassign_partitions(plan.moves)
        operation.wait_for_reassignments(lambda _: True)
        operation.clear_throttle()
        if not plan.is_empty:
            print("the cluster is balanced")
    return 0


def _print_skipped_nodes(nodes: Sequence[PlannedNode]) -> None:
    for node in nodes:
        if not node.can_receive_replicas:
            print(
                f"node {node.id} is {'drained' if node.is_online else 'offline'}: it keeps its replicas, but gets"
                " no new ones"
            )


def _cancel_reassignments(operation: ClusterOperation, arguments: argparse.Namespace) -> int:
    moves = list_reassignments(operation.cluster)
    if arguments.json:
        print_json([{"topic": move.partition.topic, "partition": move.partition.partition} for move in moves])
    else:
        print(f"  1. cancel the reassignment of {pluralize(len(moves), 'partition')}")
    if not confirm_plan(arguments):
        return 0
    # A reassignment that cannot be cancelled has just completed.
    errors = reassign_partitions(operation.cluster, {move.partition: None for move in moves})
    print(f"{pluralize(len(moves) - len(errors), 'reassignment')} cancelled")
    operation.clear_throttle()
    return 0
