"""A part of `make fuzz`: no undocumented exception, and no case takes long."""

from __future__ import annotations

import pytest

from tests.run_size import SEED, sized
from tests.security.fuzz import TARGETS
from tests.security.fuzz_framework import FuzzTarget, fuzz, mutate

EXPECTED_OUTCOMES = {
    "SCRAM server": ("authenticated", "rejected", "rejected immediately"),
    "SCRAM client": ("distrusted immediately", "distrusted"),
    "OAUTHBEARER": ("validated", "rejected"),
    "tokens": ("accepted", "InvalidToken"),
    "sessions": ("authenticated", "rejected", "unauthenticated"),
    "principal rules": ("ConfigError", "named", "no rule applies"),
    "subjects": ("read", "InvalidSubject"),
    "ACLs and filters": ("all valid", "some invalid"),
}
"""Outcomes that must occur: a target that always rejects its cases tests little."""


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_fuzzed_input_causes_only_documented_outcomes(target: FuzzTarget) -> None:
    tally = fuzz(target, SEED, sized(500, 50_000))
    assert set(EXPECTED_OUTCOMES[target.name]) <= set(tally.outcomes)


@pytest.mark.parametrize("error", [ValueError("x"), RecursionError("x"), AssertionError("x")])
def test_undocumented_exception_is_reported_with_its_case(error: Exception) -> None:
    def fail(case: bytes) -> str:
        raise error

    target = FuzzTarget("faulty", lambda rng: mutate(rng, b"case"), fail, (KeyError,))
    with pytest.raises(AssertionError, match=r"faulty: .*'x'.* for b'"):
        fuzz(target, 1, 10)


def test_slow_case_is_reported() -> None:
    slow = FuzzTarget("slow", lambda rng: 7, lambda case: str(sum(range(10_000))), seconds_max=0.0)
    with pytest.raises(AssertionError, match=r"slow: 0\.0 s for 7"):
        fuzz(slow, 1, 1)
