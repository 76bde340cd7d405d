from __future__ import annotations

import itertools

import pytest

from chronik.groups.classic.transitions import (
    HISTORY_LENGTH_MAX,
    REASON_CHARACTERS_MAX,
    TRANSITIONS,
    GroupState,
    IllegalTransition,
    Lifecycle,
    mermaid,
)

EVERY_PAIR = list(itertools.product(GroupState, GroupState))


@pytest.mark.parametrize(("source", "target"), EVERY_PAIR, ids=lambda state: str(state))
def test_a_step_is_legal_exactly_when_the_table_has_it(source: GroupState, target: GroupState) -> None:
    lifecycle = Lifecycle("orders", source)
    if (source, target) in TRANSITIONS:
        lifecycle.move(target, 1, "test")
        assert (lifecycle.previous_state, lifecycle.state) == (source, target)
    else:
        with pytest.raises(IllegalTransition):
            lifecycle.move(target, 1, "test")
        assert lifecycle.state is source


def test_nothing_leads_out_of_dead_and_everything_leads_to_it() -> None:
    living = set(GroupState) - {GroupState.DEAD}
    assert {source for source, target in TRANSITIONS if target is GroupState.DEAD} == living
    assert not [target for source, target in TRANSITIONS if source is GroupState.DEAD]


def test_an_illegal_step_tells_the_story_that_led_to_it() -> None:
    lifecycle = Lifecycle("orders")
    lifecycle.move(GroupState.PREPARING_REBALANCE, 0, "member a joins")
    with pytest.raises(IllegalTransition, match=r"'orders'.*PreparingRebalance -> Stable.*member a joins") as caught:
        lifecycle.move(GroupState.STABLE, 0, "too early")
    assert [step.reason for step in caught.value.history] == ["member a joins"]


def test_only_the_last_steps_are_remembered() -> None:
    lifecycle = Lifecycle("orders")
    for generation in range(HISTORY_LENGTH_MAX):
        lifecycle.move(GroupState.PREPARING_REBALANCE, generation, "in")
        lifecycle.move(GroupState.EMPTY, generation, "out")
    assert len(lifecycle.history) == HISTORY_LENGTH_MAX
    assert lifecycle.history[-1].generation == HISTORY_LENGTH_MAX - 1


def test_a_reason_is_remembered_as_far_as_it_fits_a_line() -> None:
    lifecycle = Lifecycle("orders")
    lifecycle.move(GroupState.PREPARING_REBALANCE, 0, "why " * 8_000)
    assert len(lifecycle.history[0].reason) == REASON_CHARACTERS_MAX


def test_the_diagram_shows_every_step_of_the_table() -> None:
    lines = mermaid().splitlines()
    assert lines[0] == "stateDiagram-v2"
    for (source, target), reason in TRANSITIONS.items():
        assert f"    {source} --> {target}: {reason}" in lines
    assert len(lines) == len(TRANSITIONS) + 3
