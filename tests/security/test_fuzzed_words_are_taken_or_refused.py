"""A share of what `make fuzz` does in full: no exception but those that are declared, and none takes long."""

from __future__ import annotations

import pytest

from tests.long import SEED, count
from tests.security.fuzz import TARGETS
from tests.security.fuzzing import Target, fuzz, mutated

BOTH_WAYS = {
    "SCRAM, the node's side": ("let in", "refused", "refused at once"),
    "SCRAM, a client's side": ("distrusted at once", "distrusted"),
    "OAUTHBEARER": ("asked for", "refused"),
    "tokens": ("believed", "TokenRefused"),
    "sessions": ("let in", "refused", "nobody"),
    "principal rules": ("ConfigError", "named", "no rule applies"),
    "subjects": ("read", "BadSubject"),
    "ACLs and filters": ("all can be", "some cannot"),
}
"""What must have come of some: a target that only ever refuses tells little."""


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_nothing_else_comes_of_it(target: Target) -> None:
    tally = fuzz(target, SEED, count(500, 50_000))
    assert set(BOTH_WAYS[target.name]) <= set(tally.outcomes)


@pytest.mark.parametrize("harm", [ValueError("x"), RecursionError("x"), AssertionError("x")])
def test_what_is_not_declared_is_told_with_its_case(harm: Exception) -> None:
    def fail(case: bytes) -> str:
        raise harm

    target = Target("faulty", lambda rng: mutated(rng, b"case"), fail, (KeyError,))
    with pytest.raises(AssertionError, match=r"faulty: .*'x'.* for b'"):
        fuzz(target, 1, 10)


def test_what_takes_too_long_is_told() -> None:
    slow = Target("slow", lambda rng: 7, lambda case: str(sum(range(10_000))), seconds_max=0.0)
    with pytest.raises(AssertionError, match=r"slow: 0\.0 s for 7"):
        fuzz(slow, 1, 1)
