"""A minimal parser of the Prometheus text format: the sum of the samples of each metric. Free of I/O.

Labels are ignored, and lines that cannot be parsed are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_SAMPLE: Final = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*")

MetricSums = Mapping[str, float]


def sum_metrics(text: str) -> dict[str, float]:
    """Return the sum of each metric's samples over all labels."""
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


def first_metric(found: MetricSums, *names: str) -> int | None:
    """Return the first metric that exists; names may differ between versions of Chronik."""
    return next((int(found[name]) for name in names if name in found), None)
