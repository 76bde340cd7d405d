"""Reads what /metrics says: samples of Prometheus' text format, by name. Pure.

Only what a counter's sum needs is understood: names, labels as they stand, values. Lines that are none are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_SAMPLE: Final = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*")

Sums = Mapping[str, float]


def sums(text: str) -> dict[str, float]:
    """Returns each family's samples added up, whatever their labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match is None or line.startswith("#"):
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        found[match["name"]] = found.get(match["name"], 0.0) + value
    return found


def first_of(found: Sums, *names: str) -> int | None:
    """Returns the first that there is: versions of Chronik may name a thing differently."""
    return next((int(found[name]) for name in names if name in found), None)
