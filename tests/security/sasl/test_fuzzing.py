"""A part of `make fuzz`: SASL conversations, and requests about users, quotas and ACLs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.long import SEED, count
from tests.security.fuzz import asked

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_fuzzed_sasl_frames_are_answered_or_close_their_connection(
    seed: int, record_property: Callable[[str, object], None]
) -> None:
    for summary in asked(seed, count(150, 5_000)):
        record_property("summary", f"fuzzed {summary}")
