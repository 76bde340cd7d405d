"""A part of `make fuzz`: SASL conversations, and requests about users, quotas and ACLs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.run_size import SEED, sized
from tests.security.fuzz import fuzz_broker

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_fuzzed_sasl_frames_are_answered_or_close_their_connection(
    seed: int, record_property: Callable[[str, object], None]
) -> None:
    for summary in fuzz_broker(seed, sized(150, 5_000)):
        record_property("summary", f"fuzzed {summary}")
