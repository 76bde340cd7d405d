"""The model of a subject, and what the checker detects with it."""

from __future__ import annotations

import pytest

from tests.linearizability.checker import check_history
from tests.linearizability.subjects import (
    SUBJECTS,
    DeleteLatest,
    DeleteSubject,
    DestroySubject,
    GetLatest,
    ListVersions,
    LookUp,
    Register,
    SubjectAction,
    SubjectAnswer,
    SubjectOperation,
    SubjectOutput,
    SubjectState,
    apply,
)

Step = tuple[SubjectAction, SubjectOutput]


def build_history(*steps: Step) -> list[SubjectOperation]:
    """Return operations that do not overlap."""
    return [
        SubjectOperation(1, "subject", action, 10 * number, 10 * number + 5, output)
        for number, (action, output) in enumerate(steps)
    ]


def test_model_follows_deletion_rules() -> None:
    steps: list[Step] = [
        (GetLatest(), SubjectAnswer.NO_SUBJECT),
        (DeleteSubject(), SubjectAnswer.NO_SUBJECT),
        (Register(7), 1),
        (Register(7), 1),
        (Register(8), 2),
        (DestroySubject(), SubjectAnswer.NOT_SOFT_DELETED),
        (DeleteLatest(), 2),
        (LookUp(8), SubjectAnswer.NO_SCHEMA),
        (Register(8), 3),
        (ListVersions(), (1, 3)),
        (DeleteSubject(), (1, 3)),
        (DeleteSubject(), SubjectAnswer.SOFT_DELETED),
        (DeleteLatest(), SubjectAnswer.NO_VERSION),
        (LookUp(8), SubjectAnswer.NO_SUBJECT),
        (DestroySubject(), (1, 3)),
        (Register(9), 1),
        (GetLatest(), (1, 9)),
    ]
    state = SubjectState()
    for action, output in steps:
        state, found = apply(state, action)
        assert found == output, action
    assert check_history(SUBJECTS, build_history(*steps)) == []


@pytest.mark.parametrize(
    "steps",
    [
        ((Register(7), 1), (GetLatest(), SubjectAnswer.NO_SUBJECT)),
        ((Register(7), 1), (Register(8), 1)),
        ((Register(7), 1), (Register(8), 3)),
        ((Register(7), 1), (Register(8), 2), (GetLatest(), (1, 7))),
        ((Register(7), 1), (DeleteSubject(), (1,)), (LookUp(7), 1)),
        ((Register(7), 1), (Register(8), 2), (ListVersions(), (2,))),
    ],
    ids=["lost", "version twice", "gap", "stale latest", "stale lookup", "lost version"],
)
def test_wrong_response_is_not_linearizable(steps: tuple[Step, ...]) -> None:
    (violation,) = check_history(SUBJECTS, build_history(*steps))
    assert violation.unexplained.input == steps[-1][0]


def test_write_of_unknown_outcome_may_take_effect_later() -> None:
    unknown = SubjectOperation(2, "subject", Register(7), 0)
    history = [unknown, *build_history((GetLatest(), SubjectAnswer.NO_SUBJECT), (GetLatest(), (1, 7)))]
    assert check_history(SUBJECTS, history) == []
