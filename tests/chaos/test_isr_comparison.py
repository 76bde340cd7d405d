"""The ISR with a delayed and with a stopped follower, compared with Apache Kafka in the same run (long only)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.isr_comparison import CHRONIK, compare, unavailable_reason
from tests.run_size import IS_LONG_RUN

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]


@pytest.mark.skipif(not IS_LONG_RUN, reason="takes minutes: make long")
def test_isr_matches_kafka_with_slow_and_stopped_followers(
    capsys: pytest.CaptureFixture[str], record_property: Callable[[str, object], None]
) -> None:
    if missing := unavailable_reason():
        pytest.skip(missing)
    results = compare(seconds=20.0, delay_s=0.02)
    printed = capsys.readouterr().out
    record_property("summary", printed.strip())
    assert results[CHRONIK], printed
