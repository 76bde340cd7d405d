"""Prometheus' text format, version 0.0.4: https://prometheus.io/docs/instrumenting/exposition_formats/"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from chronik.console.source import Metric, Sample
from chronik.errors import invariant

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

KINDS: Final = ("counter", "gauge")

_METRIC_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def exposition(metrics: Iterable[Metric]) -> str:
    """All samples of a family stand together, as the format wants; a family without samples is left out."""
    return "".join(line + "\n" for metric in metrics for line in _family(metric))


def _family(metric: Metric) -> Iterator[str]:
    invariant(_METRIC_NAME.fullmatch(metric.name) is not None, f"{metric.name!r} cannot name a metric")
    invariant(metric.kind in KINDS, f"{metric.name} is a {metric.kind!r}; expected one of {', '.join(KINDS)}")
    samples = [_sample(metric.name, sample) for sample in metric.samples]
    if samples:
        yield f"# HELP {metric.name} {metric.help.translate(_HELP_ESCAPES)}"
        yield f"# TYPE {metric.name} {metric.kind}"
        yield from samples


def _sample(name: str, sample: Sample) -> str:
    return f"{name}{_labels(sample.labels)} {_number(sample.value)}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = []
    for name, value in labels.items():
        invariant(_LABEL_NAME.fullmatch(name) is not None, f"{name!r} cannot name a label")
        pairs.append(f'{name}="{value.translate(_LABEL_ESCAPES)}"')
    return f"{{{','.join(pairs)}}}"


def _number(value: float) -> str:
    """Whole numbers are written whole: a log index is not rounded to a float's digits."""
    if isinstance(value, int):
        return str(int(value))
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
