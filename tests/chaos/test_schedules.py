"""Fault schedules are determined by their seed, so that a failed run can be repeated."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from tests.chaos.run import main
from tests.chaos.schedules import FAULT_KINDS, FaultTarget, schedule


def test_schedule_is_determined_by_seed() -> None:
    first, again, other = (list(islice(schedule(seed, tuple(FAULT_KINDS)), 50)) for seed in (1, 1, 2))
    assert first == again
    assert [(step.kind, step.target) for step in first] != [(step.kind, step.target) for step in other]


def test_schedule_covers_all_faults_and_targets() -> None:
    steps = list(islice(schedule(1, tuple(FAULT_KINDS)), 10 * len(FAULT_KINDS)))
    assert Counter(step.kind for step in steps) == dict.fromkeys(FAULT_KINDS, 10)
    assert {step.kind for step in steps[: len(FAULT_KINDS)]} == set(FAULT_KINDS)
    assert {step.target for step in steps} == set(FaultTarget)
    assert {step.is_patient for step in steps} == {True, False}
    assert all(FAULT_KINDS[step.kind].hold_s[0] <= step.hold_s <= FAULT_KINDS[step.kind].hold_s[1] for step in steps)
    assert len({step.seed for step in steps}) == len(steps)


@pytest.mark.parametrize("arguments", [["--faults", "flood"], ["--workload", "queue,stack"]])
def test_unknown_fault_is_rejected_by_name(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert f"{arguments[1].split(',')[-1]}: expected" in capsys.readouterr().err
