"""A share of what `make fuzz` says to a listener that asks who clients are, and asks of users, quotas and ACLs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.long import SEED, count
from tests.security.fuzz import asked

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_every_frame_is_answered_or_ends_its_connection_and_the_broker_is_well(
    seed: int, record_property: Callable[[str, object], None]
) -> None:
    for told in asked(seed, count(150, 5_000)):
        record_property("summary", f"fuzzed {told}")
