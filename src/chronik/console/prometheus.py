"""The Prometheus text exposition format, version 0.0.4.

See https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final

from chronik.console.status_source import Metric
from chronik.errors import check_invariant
from chronik.histogram import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

METRIC_TYPES: Final = ("counter", "gauge", "histogram")

LINES_PER_CHUNK: Final = 250
"""Number of lines encoded in one event-loop iteration. Each takes 1 to 3 µs."""

EMPTY_CHUNK: Final = b"\n"
"""A chunk with an empty line, sent if a chunk has no metrics. Prometheus ignores empty lines."""

_METRIC_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def format_exposition(metrics: Iterable[Metric | None]) -> str:
    """Format metric families in the Prometheus text format. Families without samples are omitted."""
    return "".join(line + "\n" for metric in metrics if metric is not None for line in _format_family(metric))


def iter_exposition_chunks(metrics: Iterable[Metric | None]) -> Iterator[bytes]:
    """Yield metric families in the Prometheus text format, in small chunks. A None in `metrics` ends a chunk."""
    lines: list[str] = []
    for metric in metrics:
        if metric is None:
            yield _encode_chunk(lines)
            lines.clear()
            continue
        for line in _format_family(metric):
            lines.append(line)
            if len(lines) >= LINES_PER_CHUNK:
                yield _encode_chunk(lines)
                lines.clear()
    yield _encode_chunk(lines)


def _encode_chunk(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode(errors="replace") if lines else EMPTY_CHUNK


def _format_family(metric: Metric) -> Iterator[str]:
    name = metric.name
    check_invariant(_METRIC_NAME.fullmatch(name) is not None, f"{name!r} is not a valid metric name")
    check_invariant(
        metric.kind in METRIC_TYPES, f"{name} has the type {metric.kind!r}; expected one of {', '.join(METRIC_TYPES)}"
    )
    has_header = False
    for sample in metric.samples:
        if not has_header:
            yield f"# HELP {name} {metric.help.translate(_HELP_ESCAPES)}"
            yield f"# TYPE {name} {metric.kind}"
            has_header = True
        value = sample.value
        if isinstance(value, Histogram):
            check_invariant(metric.kind == "histogram", f"{name} is a {metric.kind} but its sample is a histogram")
            yield from _format_histogram(name, sample.labels, value)
        else:
            check_invariant(metric.kind != "histogram", f"{name} is a histogram but its sample is a number")
            yield f"{name}{_format_labels(sample.labels)} {_format_number(value)}"


def _format_histogram(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterator[str]:
    """Yield the lines of a histogram. Bucket counts are cumulative."""
    count = 0
    for bound, own in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
        count += own
        yield f"{name}_bucket{_format_labels({**labels, 'le': _format_number(bound)})} {count}"
    yield f"{name}_sum{_format_labels(labels)} {_format_number(histogram.total_seconds)}"
    yield f"{name}_count{_format_labels(labels)} {count}"


def _format_labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = [f'{_validate_label_name(name)}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels.items()]
    return f"{{{','.join(pairs)}}}"


@cache
def _validate_label_name(label: str) -> str:
    """Validate and return a label name. Results are cached; there are only a few distinct names."""
    check_invariant(_LABEL_NAME.fullmatch(label) is not None, f"{label!r} is not a valid label name")
    return label


def _format_number(value: float) -> str:
    """Format a number. Integers are not converted to float, so that large log indexes stay exact."""
    if isinstance(value, int):
        return str(int(value))
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
