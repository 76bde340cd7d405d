from __future__ import annotations

from .fuzz_decoder import fuzz


def test_fuzzed_frames_decode_or_raise_typed_errors() -> None:
    outcomes = fuzz(seed=20260, count=10_000)
    assert outcomes.total() == 10_000
    assert set(outcomes) == {"decoded", "MalformedMessage", "UnknownApi", "UnsupportedVersion"}
    assert min(outcomes["decoded"], outcomes["MalformedMessage"]) > 1000
