"""The roles of a node and every legal step between them; the diagram in docs/cluster.md is drawn from this table.

Being a learner is not a role: the membership says who is one, and a learner is a follower that never campaigns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from chronik.errors import InvariantBroken


class Role(StrEnum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


TRANSITIONS: Final[Mapping[tuple[Role, Role], str]] = MappingProxyType(
    {
        (Role.FOLLOWER, Role.PRE_CANDIDATE): "no word from a leader for an election timeout",
        (Role.FOLLOWER, Role.CANDIDATE): "the leader hands over",
        (Role.PRE_CANDIDATE, Role.CANDIDATE): "a majority would vote for it",
        (Role.PRE_CANDIDATE, Role.FOLLOWER): "refused, or somebody leads, or a higher term",
        (Role.CANDIDATE, Role.LEADER): "a majority voted for it",
        (Role.CANDIDATE, Role.FOLLOWER): "refused, or somebody leads, or a higher term",
        (Role.LEADER, Role.FOLLOWER): "a higher term, no contact with a majority, or removed",
    }
)
"""A candidate whose time is up becomes a follower first and asks anew: it must not raise the term without asking."""

HISTORY_LENGTH_MAX: Final = 32
"""How many steps are kept, for the history that an illegal one is reported with."""


class Step(msgspec.Struct, frozen=True):
    term: int
    source: Role
    target: Role
    reason: str

    def __str__(self) -> str:
        return f"term {self.term}: {self.source} -> {self.target} ({self.reason})"


class IllegalStep(InvariantBroken):
    """The node was told to take a step that is not in the table; the message carries its recent history."""


class Career:
    """The role of a node, and how it came to it."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self.role = Role.FOLLOWER
        self.history: deque[Step] = deque(maxlen=HISTORY_LENGTH_MAX)

    def move(self, target: Role, term: int, reason: str) -> Step:
        """Takes the step, and remembers it. Raises IllegalStep."""
        step = Step(term, self.role, target, reason)
        if (self.role, target) not in TRANSITIONS:
            story = "; ".join(str(each) for each in self.history) or "none"
            raise IllegalStep(f"node {self._node_id} cannot take the step {step}; its history: {story}")
        self.history.append(step)
        self.role = target
        return step


def mermaid() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> follower"]
    names = {Role.PRE_CANDIDATE: "pre_candidate"}  # Mermaid takes no dash in a name
    for (source, target), reason in TRANSITIONS.items():
        lines.append(f"    {names.get(source, source)} --> {names.get(target, target)}: {reason}")
    return "\n".join(lines) + "\n"
