"""The transition table of classic groups, and the state diagram in docs/internals/groups.md generated from it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from chronik.groups.classic.transitions import (
    HISTORY_LENGTH_MAX,
    REASON_CHARACTERS_MAX,
    TRANSITIONS,
    GroupLifecycle,
    GroupState,
    IllegalGroupTransition,
    render_mermaid,
)

EVERY_PAIR = list(itertools.product(GroupState, GroupState))

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "groups.md"


@pytest.mark.parametrize(("source", "target"), EVERY_PAIR, ids=lambda state: str(state))
def test_transition_is_legal_only_if_in_table(source: GroupState, target: GroupState) -> None:
    lifecycle = GroupLifecycle("orders", source)
    if (source, target) in TRANSITIONS:
        lifecycle.transition_to(target, 1, "test")
        assert (lifecycle.previous_state, lifecycle.state) == (source, target)
    else:
        with pytest.raises(IllegalGroupTransition):
            lifecycle.transition_to(target, 1, "test")
        assert lifecycle.state is source


def test_dead_is_reachable_from_all_states_and_final() -> None:
    living = set(GroupState) - {GroupState.DEAD}
    assert {source for source, target in TRANSITIONS if target is GroupState.DEAD} == living
    assert not [target for source, target in TRANSITIONS if source is GroupState.DEAD]


def test_illegal_transition_error_contains_history() -> None:
    lifecycle = GroupLifecycle("orders")
    lifecycle.transition_to(GroupState.PREPARING_REBALANCE, 0, "member a joins")
    with pytest.raises(
        IllegalGroupTransition, match=r"'orders'.*PreparingRebalance -> Stable.*member a joins"
    ) as caught:
        lifecycle.transition_to(GroupState.STABLE, 0, "too early")
    assert [step.reason for step in caught.value.history] == ["member a joins"]


def test_transition_history_is_bounded() -> None:
    lifecycle = GroupLifecycle("orders")
    for generation in range(HISTORY_LENGTH_MAX):
        lifecycle.transition_to(GroupState.PREPARING_REBALANCE, generation, "in")
        lifecycle.transition_to(GroupState.EMPTY, generation, "out")
    assert len(lifecycle.history) == HISTORY_LENGTH_MAX
    assert lifecycle.history[-1].generation == HISTORY_LENGTH_MAX - 1


def test_transition_reason_is_truncated() -> None:
    lifecycle = GroupLifecycle("orders")
    lifecycle.transition_to(GroupState.PREPARING_REBALANCE, 0, "why " * 8_000)
    assert len(lifecycle.history[0].reason) == REASON_CHARACTERS_MAX


def test_mermaid_diagram_contains_all_transitions() -> None:
    lines = render_mermaid().splitlines()
    assert lines[0] == "stateDiagram-v2"
    for (source, target), reason in TRANSITIONS.items():
        assert f"    {source} --> {target}: {reason}" in lines
    assert len(lines) == len(TRANSITIONS) + 3


def test_docs_state_diagram_matches_transition_table() -> None:
    assert render_mermaid().strip() in PAGE.read_text(encoding="utf-8")
