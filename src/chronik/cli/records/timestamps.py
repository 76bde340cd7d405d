"""Parsing of timestamps: ISO 8601, or milliseconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from chronik.cli.arguments import InvalidInput

INT64_MAX = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_timestamp_ms(text: str) -> int:
    """Parse a timestamp into milliseconds since the epoch. Without a time zone it is UTC. Raise InvalidInput."""
    try:
        if text.isascii() and text.isdigit():
            return check_int64(int(text))
        found = datetime.fromisoformat(text)
        return ((found.replace(tzinfo=UTC) if found.tzinfo is None else found) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        expected = "a time such as 2026-05-31T12:00:00Z, or milliseconds since the epoch"
        raise InvalidInput(f"{text!r}: expected {expected}") from None


def check_int64(number: int) -> int:
    """Return the number if it fits into an int64, otherwise raise ValueError."""
    if abs(number) > INT64_MAX:
        raise ValueError(f"{number} does not fit into 64 bits")
    return number
