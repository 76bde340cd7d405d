"""`chronik cluster drain`, `undrain`, `promote`, `demote` and `rebalance`: what nodes do, who votes, who holds what."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from chronik.cli.arguments import Actions
from chronik.cli.cluster.carrying_out import Operation, is_agreed, show
from chronik.cli.cluster.operators import add_operator_arguments, checked, grown, node_id, operating
from chronik.cli.output import print_json
from chronik.client.partitions import list_reassignments, reassign_partitions
from chronik.planning.changes import (
    Plan,
    plan_demotion,
    plan_drain,
    plan_promotion,
    plan_rebalancing,
    plan_undrain,
)
from chronik.planning.views import NodeView, named
from chronik.wording import counted

PLANS: Final = {"drain": plan_drain, "undrain": plan_undrain, "promote": plan_promotion, "demote": plan_demotion}
DONE: Final = {
    "drain": "node {} is drained already",
    "undrain": "node {} is not drained",
    "promote": "node {} is meant to vote already",
    "demote": "node {} is not meant to vote anyway",
}
IF_STOPPED: Final = {
    "drain": "The node stays drained whoever waits; chronik cluster undrain takes it back.",
    "undrain": "It is done whoever waits; chronik cluster drain takes it back.",
    "promote": "The node gets its vote when it has caught up, whoever waits; chronik cluster demote takes it back.",
    "demote": "The vote is taken whoever waits; chronik cluster promote gives it back.",
}
IF_REBALANCING_STOPPED: Final = (
    "If this is stopped, partitions go on moving, throttled as they are. Run it again to wait for the rest and to end"
    " the throttling, or with --cancel to leave partitions that are on their way where they were."
)


def add_arguments(actions: Actions) -> None:
    helps = {
        "drain": "let a node lead nothing and get no new replicas, until it is undrained",
        "undrain": "let a drained node lead again",
        "promote": "let a node vote",
        "demote": "let a node follow without a vote",
    }
    for name, about in helps.items():
        parser = actions.add_parser(name, help=about)
        parser.add_argument("node", type=node_id, metavar="NODE")
        parser.set_defaults(action=name)
        add_operator_arguments(parser, run_change)

    rebalance = actions.add_parser("rebalance", help="spread replicas and leaders evenly over nodes and racks")
    rebalance.add_argument("--cancel", action="store_true", help="give up all moves that are under way")
    add_operator_arguments(rebalance, run_rebalance, moves=True)


def run_change(arguments: argparse.Namespace) -> int:
    checked(arguments)
    with operating(arguments, IF_STOPPED[arguments.action], arguments.wait) as operation:
        plan = PLANS[arguments.action](grown(operation.view()).nodes, arguments.node)
        if plan.is_empty and not arguments.json:
            print(DONE[arguments.action].format(arguments.node))
        else:
            show(plan, arguments)
        if not plan.is_empty and not is_agreed(arguments):
            return 0
        if not arguments.dry_run:
            _carry_out(operation, plan)
    return 0


def _carry_out(operation: Operation, plan: Plan) -> None:
    if plan.drains is not None:
        operation.drain(plan.drains)
        _wait_until_led_by_others(operation, plan.drains)
    if plan.undrains is not None:
        operation.undrain(plan.undrains)
    for each in plan.promotes:
        operation.promote(each)
    for each in plan.demotes:
        operation.demote(each)


def _wait_until_led_by_others(operation: Operation, drained: int) -> None:
    """Tells what nobody else could lead."""

    def missing() -> str | None:
        view = operation.view()
        able = {node.id for node in view.nodes if node.takes_replicas}
        led = [each for each in view.partitions if each.leader == drained]
        if waiting := [each for each in led if able & set(each.in_sync)]:
            return f"node {drained} leads {named(waiting)}"
        if led:
            print(f"node {drained} still leads {counted(len(led), 'partition')} that no other could: {named(led)}")
        return None

    operation.wait_until(missing)


def run_rebalance(arguments: argparse.Namespace) -> int:
    checked(arguments)
    with operating(arguments, IF_REBALANCING_STOPPED, arguments.wait) as operation:
        if arguments.cancel:
            return _cancel(operation, arguments)
        view = grown(operation.view())
        plan = plan_rebalancing(view.nodes, view.partitions)
        under_way = sum(bool(each.leaving) for each in view.partitions)
        if not arguments.json:
            _tell_who_is_left_alone(view.nodes)
        if plan.is_empty and not arguments.json:
            print("nodes are even: nothing has to move")
        else:
            show(plan, arguments)
        if not plan.is_empty and not is_agreed(arguments):
            return 0
        if arguments.dry_run:
            return 0
        if under_way and plan.is_empty:
            print(f"{counted(under_way, 'partition')} on the way from before")
        operation.throttle(plan.moves, arguments.throttle)
        operation.move(plan.moves)
        operation.wait_for_moves(lambda _: True)
        operation.clear_throttle()
        if not plan.is_empty:
            print("nodes are even")
    return 0


def _tell_who_is_left_alone(nodes: Sequence[NodeView]) -> None:
    for node in nodes:
        if not node.takes_replicas:
            print(
                f"node {node.id} is {'drained' if node.is_online else 'away'}: it keeps what it has, and gets nothing"
            )


def _cancel(operation: Operation, arguments: argparse.Namespace) -> int:
    moves = list_reassignments(operation.cluster)
    if arguments.json:
        print_json([{"topic": move.partition.topic, "partition": move.partition.partition} for move in moves])
    else:
        print(f"  1. leave {counted(len(moves), 'partition')} on the way where they were")
    if not is_agreed(arguments):
        return 0
    # What is refused has just arrived.
    refused = reassign_partitions(operation.cluster, {move.partition: None for move in moves})
    print(f"{counted(len(moves) - len(refused), 'move')} given up")
    operation.clear_throttle()
    return 0
