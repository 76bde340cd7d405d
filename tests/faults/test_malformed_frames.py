"""Malformed frames over a socket; `make fuzz` runs more of them."""

from __future__ import annotations

from collections.abc import Callable

from chronik.testing.plugin import BrokerFactory
from tests.fuzz import fuzz_socket
from tests.run_size import SEED, sized


def test_malformed_frames_get_response_or_close_connection(
    chronik_broker_factory: BrokerFactory, record_property: Callable[[str, object], None]
) -> None:
    frames = sized(3_000, 100_000)
    tally = fuzz_socket(chronik_broker_factory(), SEED, frames)
    assert tally.answered + tally.closed == frames
    assert tally.answered > 0
    assert tally.closed > 0
    record_property(
        "summary",
        f"malformed frames over a socket: {frames}, {tally.answered} answered, {tally.closed} closed, "
        f"slowest {tally.slowest_seconds * 1000:.0f} ms",
    )
