"""Durations in ISO 8601."""

from __future__ import annotations

import pytest

from chronik.durations import parse_duration_ms


@pytest.mark.parametrize("duration", ["", "P", "PT", "1D", "P1", "P-1D", "PT5", "P1H", "P1DT"])
def test_invalid_iso_8601_duration_is_rejected(duration: str) -> None:
    with pytest.raises(ValueError, match="expected an ISO 8601 duration"):
        parse_duration_ms(duration)


def test_iso_8601_duration_is_parsed() -> None:
    assert parse_duration_ms("P1W") == 7 * 24 * 3600 * 1000
    assert parse_duration_ms("P1DT2H3M4.5S") == 1000 * (24 * 3600 + 2 * 3600 + 3 * 60) + 4500
