"""The Raft roles and the legal transitions between them.

The diagram in docs/operate/cluster.md is generated from this table.

A learner is not a role: the membership defines the learners, which are followers that never campaign.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from chronik.errors import InvariantError


class Role(StrEnum):
    """The role of a Raft node."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


TRANSITIONS: Final[Mapping[tuple[Role, Role], str]] = MappingProxyType(
    {
        (Role.FOLLOWER, Role.PRE_CANDIDATE): "election timeout",
        (Role.FOLLOWER, Role.CANDIDATE): "leadership transfer",
        (Role.PRE_CANDIDATE, Role.CANDIDATE): "pre-vote won",
        (Role.PRE_CANDIDATE, Role.FOLLOWER): "pre-vote lost, other leader, or higher term",
        (Role.CANDIDATE, Role.LEADER): "election won",
        (Role.CANDIDATE, Role.FOLLOWER): "election lost, other leader, or higher term",
        (Role.LEADER, Role.FOLLOWER): "higher term, no contact with a majority, or removed",
    }
)
"""The allowed role transitions of a Raft node, with their causes.

A candidate whose election timeout expires becomes a follower first, so that each campaign starts with a pre-vote.
"""

HISTORY_LENGTH_MAX: Final = 32
"""The maximum number of role transitions kept for error messages."""


class RoleTransition(msgspec.Struct, frozen=True):
    """A transition of a node's Raft role."""

    term: int
    source: Role
    target: Role
    reason: str

    def __str__(self) -> str:
        return f"term {self.term}: {self.source} -> {self.target} ({self.reason})"


class IllegalRoleTransition(InvariantError):
    """A role transition of a Raft node that is not allowed. The message contains the recent transitions."""


class RoleHistory:
    """A Raft node's current role and its recent role transitions."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self.role = Role.FOLLOWER
        self.history: deque[RoleTransition] = deque(maxlen=HISTORY_LENGTH_MAX)

    def transition_to(self, target: Role, term: int, reason: str) -> RoleTransition:
        """Change the role and return the transition. Raise IllegalRoleTransition if it is not allowed."""
        step = RoleTransition(term, self.role, target, reason)
        if (self.role, target) not in TRANSITIONS:
            previous = "; ".join(str(each) for each in self.history) or "none"
            raise IllegalRoleTransition(
                f"Raft node {self._node_id}: illegal role transition {step}; previous transitions: {previous}"
            )
        self.history.append(step)
        self.role = target
        return step


def format_mermaid() -> str:
    """Return the allowed role transitions as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> follower"]
    names = {Role.PRE_CANDIDATE: "pre_candidate"}  # Mermaid does not allow a dash in a state name
    for (source, target), reason in TRANSITIONS.items():
        lines.append(f"    {names.get(source, source)} --> {names.get(target, target)}: {reason}")
    return "\n".join(lines) + "\n"
