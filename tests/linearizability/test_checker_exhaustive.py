"""The checker compared with an exhaustive search on many small histories."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations, permutations

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from tests.linearizability.checker import check_history
from tests.linearizability.topics import (
    TOPICS,
    Action,
    Create,
    Delete,
    Exists,
    Get,
    Output,
    Set,
    TopicAnswer,
    TopicOperation,
)
from tests.run_size import sized

VALUES = (1, 2)
TIMES_MAX = 12
OPERATIONS_MAX = 6


def is_legal(history: Sequence[TopicOperation]) -> bool:
    known = [operation for operation in history if operation.is_known]
    unknown = [operation for operation in history if not operation.is_known]
    subsets = chain.from_iterable(combinations(unknown, size) for size in range(len(unknown) + 1))
    return any(_matches_recorded_responses(order) for some in subsets for order in permutations([*known, *some]))


def _matches_recorded_responses(order: Sequence[TopicOperation]) -> bool:
    state = TOPICS.initial
    for place, operation in enumerate(order):
        for later in order[place + 1 :]:
            if later.returned_ns is not None and later.returned_ns < operation.called_ns:
                return False
        state, output = TOPICS.apply(state, operation.input)
        if operation.is_known and output != operation.output:
            return False
    return True


def outputs_of(action: Action) -> tuple[Output, ...]:
    match action:
        case Create():
            return TopicAnswer.DONE, TopicAnswer.ALREADY_EXISTS
        case Exists():
            return TopicAnswer.EXISTS, TopicAnswer.MISSING
        case Get():
            return *VALUES, TopicAnswer.MISSING
        case Delete() | Set():
            return TopicAnswer.DONE, TopicAnswer.MISSING


ACTIONS: list[Action] = [Delete(), Exists(), Get(), *map(Create, VALUES), *map(Set, VALUES)]


@st.composite
def operations(draw: st.DrawFn) -> TopicOperation:
    action = draw(st.sampled_from(ACTIONS))
    called = draw(st.integers(0, TIMES_MAX))
    if not isinstance(action, Exists | Get) and draw(st.integers(0, 3)) == 0:
        return TopicOperation(0, "a", action, called)
    returned = draw(st.integers(called, TIMES_MAX))
    return TopicOperation(0, "a", action, called, returned, draw(st.sampled_from(outputs_of(action))))


A_WRITE_THAT_CHANGES_NOTHING_AT_FIRST = [
    TopicOperation(0, "a", Get(), 1, 1, 2),
    TopicOperation(0, "a", Set(1), 0, 0, TopicAnswer.DONE),
    TopicOperation(0, "a", Set(2), 0, 0, TopicAnswer.DONE),
    TopicOperation(0, "a", Create(2), 0),
]
"""Create, Set(1), Set(2), Get. After Create, Set(2) would change nothing, but must not be considered complete."""


@pytest.mark.slow
@settings(max_examples=sized(1000, 50_000), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(operations(), max_size=OPERATIONS_MAX))
@example(A_WRITE_THAT_CHANGES_NOTHING_AT_FIRST)
def test_checker_agrees_with_exhaustive_search(history: list[TopicOperation]) -> None:
    legal = is_legal(history)
    event("legal" if legal else "illegal")
    assert (check_history(TOPICS, history) == []) == legal
