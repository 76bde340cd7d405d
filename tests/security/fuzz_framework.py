"""Fuzzing framework: targets with seeded cases, allowed exceptions and a time limit per case."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

SECONDS_MAX: Final = 1.0
CASE_CHARACTERS_SHOWN_MAX: Final = 4_000


class FuzzTarget(NamedTuple):
    name: str
    make: Callable[[random.Random], Any]
    run: Callable[[Any], str]
    """Run a case and return its outcome in a word. Raises AssertionError for a wrong result."""
    allowed_exceptions: tuple[type[Exception], ...] = ()
    """Documented exceptions."""
    seconds_max: float = SECONDS_MAX
    """Time limit of one case; a larger one needs a reason."""


class FuzzTally(NamedTuple):
    outcomes: Counter[str]
    slowest_seconds: float


def fuzz(target: FuzzTarget, seed: int, count: int) -> FuzzTally:
    """Run seeded cases; raise AssertionError with the case if an outcome is not allowed."""
    rng = random.Random(f"{target.name} {seed}")
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    for _ in range(count):
        case = target.make(rng)
        began = time.thread_time()  # CPU time: the machine may be busy
        outcomes[_outcome(target, case)] += 1
        slowest = max(slowest, time.thread_time() - began)
        assert slowest <= target.seconds_max, f"{target.name}: {slowest:.1f} s for {_format_case(case)}"
    return FuzzTally(outcomes, slowest)


def _outcome(target: FuzzTarget, case: Any) -> str:
    try:
        return target.run(case)
    except target.allowed_exceptions as refusal:
        return type(refusal).__name__
    except BaseException as error:
        raise AssertionError(f"{target.name}: {error!r} for {_format_case(case)}") from error


def _format_case(case: Any) -> str:
    return repr(case)[:CASE_CHARACTERS_SHOWN_MAX]


def summarize(target: FuzzTarget, seed: int, tally: FuzzTally) -> str:
    """Return a one-line summary."""
    count = tally.outcomes.total()
    outcomes = ", ".join(f"{name} {number:,}" for name, number in tally.outcomes.most_common())
    return f"{target.name}: seed {seed}: {count:,} cases, slowest {tally.slowest_seconds * 1000:.1f} ms: {outcomes}"


def mutate(rng: random.Random, data: bytes, pieces: Sequence[bytes] = ()) -> bytes:
    """Return mutated data: bytes changed, removed or duplicated, and significant byte sequences inserted, sometimes
    repeated up to a thousand times. A third of the results is unchanged.
    """
    changed = bytearray(data)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(6):
            case 0:
                changed[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
            case 1:
                del changed[at:]
            case 2:
                changed[at:at] = changed[rng.randrange(at + 1) : at]
            case 3:
                del changed[at : at + rng.randrange(8)]
            case _:
                piece = rng.choice(pieces) if pieces else rng.randbytes(1)
                changed[at:at] = piece * (rng.choice((100, 1000)) if rng.random() < 0.05 else 1)
    return bytes(changed)
