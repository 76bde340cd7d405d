"""Moments as people and programs write them: ISO 8601, or milliseconds since 1970, as records have them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from chronik.cli.arguments import WrongInput

INT64_MAX = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(text: str) -> int:
    """Digits alone are milliseconds; a time without a zone is UTC, as in Kafka's own tools. Raises WrongInput."""
    try:
        if text.isascii() and text.isdigit():
            return within_int64(int(text))
        found = datetime.fromisoformat(text)
        return ((found.replace(tzinfo=UTC) if found.tzinfo is None else found) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        expected = "a time such as 2026-05-31T12:00:00Z, or milliseconds since 1970"
        raise WrongInput(f"{text!r}: expected {expected}") from None


def within_int64(number: int) -> int:
    """Raises ValueError for what Kafka's protocol has no room for."""
    if abs(number) > INT64_MAX:
        raise ValueError(f"{number} is beyond 64 bits")
    return number
