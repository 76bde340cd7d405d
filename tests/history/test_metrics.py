"""The declared metrics: unique names, limits, and documentation."""

from __future__ import annotations

import re

from chronik.history.metrics import LATENCY_KINDS, METRICS, SUBJECTS_MAX, Scope, list_scope_metrics
from chronik.history.series import SLOTS
from tests.docs.blocks import ROOT

LATENCIES = {f"{kind}_p{percentile}_ms" for kind in LATENCY_KINDS for percentile in (50, 99)}


def test_names_are_unique_and_every_scope_has_metrics() -> None:
    assert len({each.name for each in METRICS}) == len(METRICS)
    assert all(list_scope_metrics(scope) for scope in Scope)


def test_docs_list_every_metric_and_its_unit() -> None:
    page = (ROOT / "docs/operate/monitoring.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    units = {name: row for row in rows for name in re.findall(r"`(\w+)`", row)}
    for metric in METRICS:
        if metric.name not in LATENCIES:
            assert metric.unit in units[metric.name], metric.name
    assert all(kind in "".join(rows) for kind in LATENCY_KINDS)


def test_documented_memory_holds_all_series() -> None:
    series = sum(len(list_scope_metrics(scope)) * SUBJECTS_MAX[scope] for scope in Scope)
    assert 4 * SLOTS * series < 4_200_000
