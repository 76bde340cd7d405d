from __future__ import annotations

from .fuzz_decoder import fuzz


def test_ten_thousand_fuzzed_frames_end_in_a_message_or_a_typed_error() -> None:
    outcomes = fuzz(seed=20260, count=10_000)
    assert outcomes.total() == 10_000
    assert set(outcomes) == {"decoded", "MalformedMessage", "UnknownApi", "UnsupportedVersion"}
    assert min(outcomes["decoded"], outcomes["MalformedMessage"]) > 1000
