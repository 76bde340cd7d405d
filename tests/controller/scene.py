"""A cluster as its leader sees it, step by step: what nodes are meant to be, what they are, and who is heard."""

from __future__ import annotations

from collections.abc import Collection

from chronik.controller import reconciling
from chronik.controller.reconciling import HandOver, Seen, Step
from chronik.metadata.records import Node
from chronik.raft.membership import Member, Membership, changed

INDEX = 100
STEPS_MAX = 50


def disk(node_id: int) -> bytes:
    return bytes([node_id]) * 16


class Scene:
    def __init__(
        self, meant: str, fact: str, *, leader: int, heard: Collection[int] | None = None, drained: Collection[int] = ()
    ) -> None:
        """Each text has a character for each node from 1 on: V votes, o follows, - is none."""
        self.nodes = {
            node_id: Node(node_id, f"h{node_id}", 5000, letter == "V", node_id in drained)
            for node_id, letter in enumerate(meant, 1)
            if letter != "-"
        }
        members = [Member(each, disk(each), letter == "V") for each, letter in enumerate(fact, 1) if letter != "-"]
        self.membership = Membership(tuple(members))
        self.leader = leader
        self.heard = set(range(1, 1 + max(len(meant), len(fact)))) if heard is None else set(heard)
        self.behind: set[int] = set()
        self.steps: list[Step] = []

    @property
    def seen(self) -> Seen:
        matches = {
            member.node_id: INDEX - 1 if member.node_id in self.behind else INDEX
            for member in self.membership.members
            if member.node_id != self.leader
        }
        return Seen(self.leader, self.nodes, self.membership, INDEX, matches, self.heard)

    @property
    def fact(self) -> str:
        last = max(self.nodes.keys() | {member.node_id for member in self.membership.members})
        seats = [self.membership.get(node_id) for node_id in range(1, last + 1)]
        return "".join("-" if seat is None else "V" if seat.is_voter else "o" for seat in seats)

    def step(self) -> Step | None:
        step = reconciling.next_step(self.seen)
        match step:
            case None:
                return None
            case HandOver(heir):
                self.leader = heir
            case _:
                after = changed(self.membership, step)
                assert after is not None, f"{step} makes no sense in {self.fact}"
                self.membership = after
        self.steps.append(step)
        return step

    def run(self) -> list[str]:
        """Returns what was done, in words, until nothing is left to do."""
        for _ in range(STEPS_MAX):
            if self.step() is None:
                return [f"{type(step).__name__} {step.node_id}" for step in self.steps]
        raise AssertionError(f"no end: {self.steps}")
