"""A cluster as its leader sees it: the intended and the actual membership, and the active nodes."""

from __future__ import annotations

from collections.abc import Collection

from chronik.controller import reconciliation
from chronik.controller.reconciliation import MembershipView, ReconciliationStep, TransferLeader
from chronik.metadata.records import NodeRecord
from chronik.raft.membership import DemoteVoter, Membership, PromoteLearner, RaftMember, RemoveMember, apply_change

INDEX = 100
STEPS_MAX = 50
VERBS = {PromoteLearner: "promote", DemoteVoter: "demote", RemoveMember: "remove", TransferLeader: "transfer"}


def disk(node_id: int) -> bytes:
    return bytes([node_id]) * 16


class MembershipScene:
    """A cluster whose leader reconciles the membership step by step."""

    def __init__(
        self,
        meant: str,
        fact: str,
        *,
        leader: int,
        active: Collection[int] | None = None,
        drained: Collection[int] = (),
    ) -> None:
        """Create a scene. The texts have a character per node from 1 on: V is a voter, o a learner, - no member."""
        self.nodes = {
            node_id: NodeRecord(node_id, f"h{node_id}", 5000, letter == "V", node_id in drained)
            for node_id, letter in enumerate(meant, 1)
            if letter != "-"
        }
        members = [RaftMember(each, disk(each), letter == "V") for each, letter in enumerate(fact, 1) if letter != "-"]
        self.membership = Membership(tuple(members))
        self.leader = leader
        self.active = set(range(1, 1 + max(len(meant), len(fact)))) if active is None else set(active)
        self.behind: set[int] = set()
        self.steps: list[ReconciliationStep] = []

    @property
    def seen(self) -> MembershipView:
        matches = {
            member.node_id: INDEX - 1 if member.node_id in self.behind else INDEX
            for member in self.membership.members
            if member.node_id != self.leader
        }
        return MembershipView(self.leader, self.nodes, self.membership, INDEX, matches, self.active)

    @property
    def actual(self) -> str:
        last = max(self.nodes.keys() | {member.node_id for member in self.membership.members})
        members = [self.membership.get(node_id) for node_id in range(1, last + 1)]
        return "".join("-" if member is None else "V" if member.is_voter else "o" for member in members)

    def step(self) -> ReconciliationStep | None:
        step = reconciliation.select_next_step(self.seen)
        match step:
            case None:
                return None
            case TransferLeader(successor):
                self.leader = successor
            case _:
                after = apply_change(self.membership, step)
                assert after is not None, f"{step} is invalid for {self.actual}"
                self.membership = after
        self.steps.append(step)
        return step

    def run(self) -> list[str]:
        """Execute all steps and return them as text."""
        for _ in range(STEPS_MAX):
            if self.step() is None:
                return [f"{VERBS[type(step)]} {step.node_id}" for step in self.steps]
        raise AssertionError(f"no end after {self.steps}")
