"""Plans as people read them, step by step, and as programs do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from chronik.planning.changes import Plan
from chronik.planning.views import Move, enumerated
from chronik.wording import counted


def shown(plan: Plan) -> list[str]:
    """Returns a sentence for each step, in their order."""
    return list(_steps(plan))


def _steps(plan: Plan) -> Iterator[str]:
    if plan.adds is not None:
        yield f"add node {plan.adds}: it follows the metadata log without a vote, and can hold replicas"
    if plan.drains is not None:
        yield f"drain node {plan.drains}: it leads nothing that another can lead, and gets no new replicas"
    if plan.undrains is not None:
        yield f"undrain node {plan.undrains}: it may lead again, and gets replicas as others do"
    for node in plan.promotes:
        yield f"give node {node} a vote"
    if plan.moves:
        yield from _moves(plan.moves)
    for node in plan.demotes:
        yield f"take the vote of node {node}"
    if plan.removes is not None:
        yield f"remove node {plan.removes} from the cluster"


def _moves(moves: tuple[Move, ...]) -> Iterator[str]:
    copied = [move for move in moves if move.added]
    if copied:
        targets = sorted(Counter(node for move in copied for node in move.added).items())
        to = enumerated(f"{count} to node {node}" for node, count in targets)
        yield f"copy replicas of {counted(len(copied), 'partition')}: {to}{_of_system_topics(copied)}"
    reordered = len(moves) - len(copied)
    if reordered:
        yield f"let {counted(reordered, 'partition')} prefer another leader, for which nothing is copied"


def _of_system_topics(moves: list[Move]) -> str:
    count = sum(move.partition.lives_in_metadata for move in moves)
    return f" ({count} of them of system topics, which hold no records)" if count else ""


def as_json(plan: Plan) -> dict[str, Any]:
    return {
        "adds": plan.adds,
        "drains": plan.drains,
        "undrains": plan.undrains,
        "promotes": plan.promotes,
        "moves": [
            {
                "topic": move.partition.topic,
                "partition": move.partition.index,
                "replicas": move.partition.replicas,
                "new_replicas": move.replicas,
            }
            for move in plan.moves
        ],
        "demotes": plan.demotes,
        "removes": plan.removes,
    }
