"""Prometheus' text format, version 0.0.4: https://prometheus.io/docs/instrumenting/exposition_formats/"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final

from chronik.console.source import Metric
from chronik.errors import invariant
from chronik.meters import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

KINDS: Final = ("counter", "gauge", "histogram")

LINES_PER_PIECE: Final = 250
"""Lines that are written in one turn of the loop: each takes 1 to 3 µs."""

NOTHING: Final = b"\n"
"""A piece of a page that has nothing to say yet: empty lines are ignored."""

_METRIC_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def exposition(metrics: Iterable[Metric | None]) -> str:
    """All samples of a family stand together, as the format wants; a family without samples is left out."""
    return "".join(line + "\n" for metric in metrics if metric is not None for line in _family(metric))


def exposition_pieces(metrics: Iterable[Metric | None]) -> Iterator[bytes]:
    """Yields the same in pieces, none of which takes long to make. None among the metrics ends a piece."""
    lines: list[str] = []
    for metric in metrics:
        if metric is None:
            yield _piece(lines)
            lines.clear()
            continue
        for line in _family(metric):
            lines.append(line)
            if len(lines) >= LINES_PER_PIECE:
                yield _piece(lines)
                lines.clear()
    yield _piece(lines)


def _piece(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode(errors="replace") if lines else NOTHING


def _family(metric: Metric) -> Iterator[str]:
    name = metric.name
    invariant(_METRIC_NAME.fullmatch(name) is not None, f"{name!r} cannot name a metric")
    invariant(metric.kind in KINDS, f"{name} is a {metric.kind!r}; expected one of {', '.join(KINDS)}")
    has_begun = False
    for sample in metric.samples:
        if not has_begun:
            yield f"# HELP {name} {metric.help.translate(_HELP_ESCAPES)}"
            yield f"# TYPE {name} {metric.kind}"
            has_begun = True
        value = sample.value
        if isinstance(value, Histogram):
            invariant(metric.kind == "histogram", f"{name} is a {metric.kind}, and not a histogram")
            yield from _histogram(name, sample.labels, value)
        else:
            invariant(metric.kind != "histogram", f"{name} is a histogram, and not a number")
            yield f"{name}{_labels(sample.labels)} {_number(value)}"


def _histogram(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterator[str]:
    """Each bucket counts what is in those below it, too."""
    count = 0
    for bound, own in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
        count += own
        yield f"{name}_bucket{_labels({**labels, 'le': _number(bound)})} {count}"
    yield f"{name}_sum{_labels(labels)} {_number(histogram.seconds)}"
    yield f"{name}_count{_labels(labels)} {count}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = [f'{_checked(name)}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels.items()]
    return f"{{{','.join(pairs)}}}"


@cache
def _checked(label: str) -> str:
    """Returns the name of a label, of which there are few."""
    invariant(_LABEL_NAME.fullmatch(label) is not None, f"{label!r} cannot name a label")
    return label


def _number(value: float) -> str:
    """Whole numbers are written whole: a log index is not rounded to a float's digits."""
    if isinstance(value, int):
        return str(int(value))
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
