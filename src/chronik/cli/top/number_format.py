"""Short formats for numbers, sizes and durations. Free of I/O."""

from __future__ import annotations

import unicodedata
from typing import Final

MISSING: Final = "-"
_UNITS: Final = ("", "k", "M", "G", "T", "P")


def format_number(value: float | None) -> str:
    """Format a number with at most three digits and an SI prefix: 7, 950, 1.2k, 34k, 5.6M."""
    if value is None:
        return MISSING
    size = abs(value)
    for unit in _UNITS:
        if size < 999.5 or unit == _UNITS[-1]:
            break
        size /= 1000
    text = f"{size:.0f}" if size >= 9.95 or size == int(size) else f"{size:.1f}"
    return f"{'-' if value < 0 else ''}{text}{unit}"


def format_bytes(value: float | None) -> str:
    return MISSING if value is None else f"{format_number(value)}B"


def format_change(value: float | None) -> str:
    """Format a rate of change with its sign: +1.2k, 0, -30."""
    if value is None:
        return MISSING
    return "0" if abs(value) < 0.05 else f"{'+' if value > 0 else ''}{format_number(value)}"


def format_duration(seconds: float | None) -> str:
    """Format a duration with at most two units: 40s, 5m, 2h10m, 3d4h."""
    if seconds is None:
        return MISSING
    whole = int(seconds)
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m"
    if whole < 172_800:
        return f"{whole // 3600}h{whole % 3600 // 60}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600}h"


def display_width(text: str) -> int:
    """Return the width of a text in terminal columns: wide East Asian characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clip_text(text: str, width: int) -> str:
    """Shorten a text to a width in terminal columns, with an ellipsis."""
    if display_width(text) <= width:
        return text
    found, used = "", 0
    for character in text:
        used += _character_width(character)
        if used > width - 1:
            break
        found += character
    return f"{found}…" if width > 0 else ""


def pad_text(text: str, width: int, *, align_right: bool) -> str:
    padding = " " * max(0, width - display_width(text))
    return padding + text if align_right else text + padding
