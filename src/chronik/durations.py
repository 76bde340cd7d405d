"""Durations in ISO 8601, such as P1DT2H30M."""

from __future__ import annotations

import re
from typing import Final

_DURATION: Final = re.compile(
    r"P(?:(\d{1,6})W)?(?:(\d{1,6})D)?(?:T(?=\d)(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?"
)


def parse_duration_ms(text: str) -> int:
    """Parse an ISO 8601 duration and return it in milliseconds.

    Months and years are rejected, because they have no fixed length.

    Raises:
        ValueError: The duration is malformed.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r}: expected an ISO 8601 duration, such as P1DT2H30M")
    weeks, days, hours, minutes, seconds = (float(each or 0) for each in match.groups())
    return round(1000 * ((((weeks * 7 + days) * 24 + hours) * 60 + minutes) * 60 + seconds))
