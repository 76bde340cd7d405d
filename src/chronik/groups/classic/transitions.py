"""The states of a classic group and the legal transitions between them.

The state diagram in the documentation is generated from this table by `render_mermaid`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from chronik.errors import InvariantError


class GroupState(StrEnum):
    """The states of a classic group, spelled as in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Final[Mapping[tuple[GroupState, GroupState], str]] = MappingProxyType(
    {
        (GroupState.EMPTY, GroupState.PREPARING_REBALANCE): "a first member joins",
        (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE): "all members joined, or the timeout expired",
        (GroupState.PREPARING_REBALANCE, GroupState.EMPTY): "the last member left or expired",
        (GroupState.COMPLETING_REBALANCE, GroupState.STABLE): "the leader's assignment is stored",
        (GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE): "a member joins, leaves or misses its sync",
        (GroupState.STABLE, GroupState.PREPARING_REBALANCE): "a member joins, changes, leaves or expires",
        (GroupState.EMPTY, GroupState.DEAD): "deleted, expired, or never stored",
        (GroupState.PREPARING_REBALANCE, GroupState.DEAD): "another node takes over",
        (GroupState.COMPLETING_REBALANCE, GroupState.DEAD): "another node takes over",
        (GroupState.STABLE, GroupState.DEAD): "another node takes over",
    }
)

REBALANCEABLE_STATES: Final = frozenset(
    source for source, target in TRANSITIONS if target is GroupState.PREPARING_REBALANCE
)

HISTORY_LENGTH_MAX: Final = 32
"""Maximum number of transitions kept for the error message of an illegal transition: about ten rebalances."""

REASON_CHARACTERS_MAX: Final = 500
"""Maximum length of a transition's reason, which is truncated. Clients may send up to 32,767 bytes."""


class GroupTransition(msgspec.Struct, frozen=True):
    """A state transition of a group."""

    generation: int
    source: GroupState
    target: GroupState
    reason: str

    def __str__(self) -> str:
        return f"generation {self.generation}: {self.source} -> {self.target} ({self.reason})"


class IllegalGroupTransition(InvariantError):
    """An illegal state transition of a group. The message contains the recent transitions."""

    def __init__(self, group_id: str, refused: GroupTransition, history: list[GroupTransition]) -> None:
        self.rejected = refused
        self.history = history
        recent = "; ".join(str(step) for step in history) or "none"
        super().__init__(f"group {group_id!r}: illegal transition {refused}; recent transitions: {recent}")


class GroupLifecycle:
    """The current state of a group and its recent transitions."""

    def __init__(self, group_id: str, state: GroupState = GroupState.EMPTY) -> None:
        self._group_id = group_id
        self.state = state
        self.previous_state = state
        self.history: deque[GroupTransition] = deque(maxlen=HISTORY_LENGTH_MAX)

    def transition_to(self, target: GroupState, generation: int, reason: str) -> None:
        """Change the state.

        Raises:
            IllegalGroupTransition: The table does not allow the transition.
        """
        step = GroupTransition(generation, self.state, target, reason[:REASON_CHARACTERS_MAX])
        if (self.state, target) not in TRANSITIONS:
            raise IllegalGroupTransition(self._group_id, step, list(self.history))
        self.history.append(step)
        self.previous_state = self.state
        self.state = target


def render_mermaid() -> str:
    """Return the transition table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {GroupState.EMPTY}"]
    lines += [f"    {source} --> {target}: {reason}" for (source, target), reason in TRANSITIONS.items()]
    lines.append(f"    {GroupState.DEAD} --> [*]")
    return "\n".join(lines) + "\n"
