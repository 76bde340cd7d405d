"""The checker on hand-written histories: every kind of violation is found, and unusual valid histories pass."""

from __future__ import annotations

import pytest

from tests.linearizability import checker
from tests.linearizability.checker import LinearizabilityViolation, Undecided, check_history
from tests.linearizability.topics import (
    TOPICS,
    Action,
    Create,
    Delete,
    Exists,
    Get,
    Output,
    Set,
    State,
    TopicAnswer,
    TopicOperation,
)

DONE, EXISTS, MISSING, ALREADY_EXISTS = (
    TopicAnswer.DONE,
    TopicAnswer.EXISTS,
    TopicAnswer.MISSING,
    TopicAnswer.ALREADY_EXISTS,
)


def did(called: int, returned: int, action: Action, output: Output, key: str = "a") -> TopicOperation:
    return TopicOperation(called, key, action, called, returned, output)


def unknown(called: int, action: Action, key: str = "a") -> TopicOperation:
    return TopicOperation(called, key, action, called)


def verdict(*history: TopicOperation) -> LinearizabilityViolation[State, Action, Output] | None:
    """Return the violation, which must not depend on the order of the history."""
    violations = check_history(TOPICS, history)
    assert [each.unexplained for each in check_history(TOPICS, history[::-1])] == [
        each.unexplained for each in violations
    ]
    assert len(violations) <= 1
    return violations[0] if violations else None


LEGAL = {
    "nothing": [],
    "one after the other": [
        did(1, 2, Create(1), DONE),
        did(3, 4, Get(), 1),
        did(5, 6, Set(2), DONE),
        did(7, 8, Get(), 2),
        did(9, 10, Delete(), DONE),
        did(11, 12, Exists(), MISSING),
        did(13, 14, Create(3), DONE),
        did(15, 16, Get(), 3),
    ],
    "a read during a write sees the value before": [
        did(1, 2, Create(1), DONE), did(3, 8, Set(2), DONE), did(4, 5, Get(), 1),
    ],
    "a read during a write sees the value after": [
        did(1, 2, Create(1), DONE), did(3, 8, Set(2), DONE), did(4, 5, Get(), 2),
    ],
    "two writes at once take effect in either order": [
        did(1, 2, Create(1), DONE), did(3, 9, Set(2), DONE), did(3, 9, Set(3), DONE), did(10, 11, Get(), 2),
    ],
    "a write takes effect before one that was called earlier": [
        did(1, 2, Create(1), DONE),
        did(3, 20, Set(2), DONE),
        did(4, 5, Set(3), DONE),
        did(6, 7, Get(), 3),
        did(8, 9, Get(), 2),
    ],
    "two creators, one of whom is refused": [did(1, 9, Create(1), DONE), did(2, 8, Create(2), ALREADY_EXISTS)],
    "two creators succeed around a deletion at the same time": [
        did(1, 9, Create(1), DONE), did(1, 9, Delete(), DONE), did(1, 9, Create(2), DONE),
    ],
    "a write of unknown outcome is never seen": [
        did(1, 2, Create(1), DONE), unknown(3, Set(2)), did(4, 5, Get(), 1), did(6, 7, Get(), 1),
    ],
    "a write of unknown outcome takes effect long after": [
        did(1, 2, Create(1), DONE),
        unknown(3, Set(2)),
        did(4, 5, Get(), 1),
        did(6, 7, Set(3), DONE),
        did(8, 9, Get(), 3),
        did(10, 11, Get(), 2),
    ],
    "a creation of unknown outcome is why another is refused": [
        unknown(1, Create(1)), did(2, 3, Create(2), ALREADY_EXISTS), did(4, 5, Get(), 1),
    ],
    "two deletions of unknown outcome allow for two more creations": [
        did(1, 2, Create(1), DONE),
        unknown(3, Delete()),
        unknown(3, Delete()),
        did(4, 5, Create(2), DONE),
        did(6, 7, Create(3), DONE),
    ],
    "operations that end and begin at the same moment overlap": [
        did(1, 5, Create(1), DONE), did(5, 6, Exists(), MISSING),
    ],
    "keys have nothing to do with each other": [
        did(1, 2, Create(1), DONE), did(3, 4, Exists(), MISSING, "b"), did(5, 6, Create(2), DONE, "b"),
    ],
}  # fmt: skip

ILLEGAL = {
    "a stale read": [did(1, 2, Create(1), DONE), did(3, 4, Set(2), DONE), did(5, 6, Get(), 1)],
    "a stale look": [did(1, 2, Create(1), DONE), did(3, 4, Exists(), MISSING)],
    "a topic seen after its deletion": [
        did(1, 2, Create(1), DONE), did(3, 4, Delete(), DONE), did(5, 6, Exists(), EXISTS),
    ],
    "a lost write": [
        did(1, 2, Create(1), DONE), did(3, 4, Set(2), DONE), did(5, 6, Get(), 2), did(7, 8, Get(), 1),
    ],
    "a lost creation": [
        did(1, 2, Create(1), DONE), did(3, 4, Exists(), EXISTS), did(5, 6, Create(2), DONE),
    ],
    "a lost deletion": [
        did(1, 2, Create(1), DONE), did(3, 4, Delete(), DONE), did(5, 6, Create(2), ALREADY_EXISTS),
    ],
    "a read of a value that nobody wrote": [did(1, 2, Create(1), DONE), did(3, 4, Get(), 7)],
    "a read of a value before anybody writes it": [
        did(1, 2, Create(1), DONE), did(3, 4, Get(), 2), did(5, 6, Set(2), DONE),
    ],
    "a read of a value before it is written with unknown outcome": [
        did(1, 2, Create(1), DONE), did(3, 4, Get(), 2), unknown(5, Set(2)),
    ],
    "two creators that both succeed": [did(1, 9, Create(1), DONE), did(2, 8, Create(2), DONE)],
    "two deletions of one topic that both succeed": [
        did(1, 2, Create(1), DONE), did(3, 9, Delete(), DONE), did(4, 8, Delete(), DONE),
    ],
    "a creation refused where there is nothing": [did(1, 2, Create(1), ALREADY_EXISTS)],
    "a deletion that misses what is there": [did(1, 2, Create(1), DONE), did(3, 4, Delete(), MISSING)],
    "a write that misses what is there": [did(1, 2, Create(1), DONE), did(3, 4, Set(2), MISSING)],
    "a write into a topic that is gone": [
        did(1, 2, Create(1), DONE), did(3, 4, Delete(), DONE), did(5, 6, Set(2), DONE),
    ],
    "a value that goes back while it is written": [
        did(1, 2, Create(1), DONE), did(3, 20, Set(2), DONE), did(4, 5, Get(), 2), did(6, 7, Get(), 1),
    ],
    "a value that goes back after a write of unknown outcome": [
        did(1, 2, Create(1), DONE), unknown(3, Set(2)), did(4, 5, Get(), 2), did(6, 7, Get(), 1),
    ],
    "a value of the topic that had the name before": [
        did(1, 2, Create(1), DONE), did(3, 4, Delete(), DONE), did(5, 6, Create(2), DONE), did(7, 8, Get(), 1),
    ],
    "two readers who see two writes in different orders": [
        did(1, 2, Create(1), DONE),
        did(3, 30, Set(2), DONE),
        did(3, 30, Set(3), DONE),
        did(4, 5, Get(), 2),
        did(6, 7, Get(), 3),
        did(8, 9, Get(), 2),
    ],
    "one deletion of unknown outcome, and two creations that need one each": [
        did(1, 2, Create(1), DONE), unknown(3, Delete()), did(4, 5, Create(2), DONE), did(6, 7, Create(3), DONE),
    ],
    "one bad key among good ones": [
        did(1, 2, Create(1), DONE, "b"), did(3, 4, Get(), 1, "b"), did(5, 6, Get(), 1, "a"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("history", LEGAL.values(), ids=LEGAL)
def test_checker_accepts_linearizable_history(history: list[TopicOperation]) -> None:
    assert verdict(*history) is None


@pytest.mark.parametrize("history", ILLEGAL.values(), ids=ILLEGAL)
def test_checker_rejects_non_linearizable_history(history: list[TopicOperation]) -> None:
    assert verdict(*history) is not None


@pytest.mark.parametrize("history", ILLEGAL.values(), ids=ILLEGAL)
def test_checker_finds_violation_among_valid_operations(history: list[TopicOperation]) -> None:
    fine = [did(time, time + 5, Exists(), MISSING, "other") for time in range(40)]
    later = [did(100 + time, 110 + time, Create(100 + time), ALREADY_EXISTS) for time in range(20)]
    assert verdict(*fine, *history, *later) is not None


def test_violation_contains_operation_and_possible_states() -> None:
    stale = did(7, 8, Get(), 1)
    before = [did(1, 2, Create(1), DONE), did(3, 4, Set(2), DONE), unknown(5, Set(3))]
    found = verdict(*before, stale, did(9, 10, Get(), 2))
    assert found is not None
    assert found.unexplained is stale
    assert found.states == (2,)
    assert len(found.operations) == 4
    assert "unexplained operation: client 7: a: Get() gave 1, 7 to 8" in str(found)
    assert "client 5: a: Set(value=3) called at 5, outcome unknown" in str(found)


@pytest.mark.slow
def test_many_unknown_outcomes_keep_search_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "CONFIGURATIONS_MAX", 50_000)
    history = [did(1, 2, Create(1), DONE)]
    for turn in range(1, 41):
        time = turn * 10
        history += [unknown(time, Set(turn * 100)), unknown(time, Delete()), unknown(time, Create(turn * 100 + 1))]
        history += [did(time + 1, time + 2, Set(turn), DONE), did(time + 3, time + 4, Get(), turn)]
    assert verdict(*history) is None
    assert verdict(*history, did(1000, 1001, Get(), 40), did(1002, 1003, Get(), 7)) is not None


def test_search_beyond_limit_has_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "CONFIGURATIONS_MAX", 20)
    overlapping = [did(3, 100, Set(number), DONE) for number in range(2, 12)]
    with pytest.raises(Undecided, match="more than 20"):
        check_history(TOPICS, [did(1, 2, Create(1), DONE), *overlapping, did(101, 102, Get(), 11)])
