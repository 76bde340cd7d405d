"""The Grafana dashboard, the alert rules and docs/reference/metrics.md match the declared metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from chronik.console.metrics.families import COUNTER, FAMILIES, GAUGE, HISTOGRAM
from chronik.console.metrics.listing import PAGE, update_page
from tests.console.metrics.promql import VECTOR, Expression, ExpressionType, PromqlError

ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "packaging/grafana/chronik.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((ROOT / "packaging/prometheus/alerts.yml").read_text(encoding="utf-8"))
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

SERIES = {
    f"{name}{suffix}": family
    for name, family in FAMILIES.items()
    for suffix in (("_bucket", "_sum", "_count") if family.kind == HISTOGRAM else ("",))
}
SCRAPE_LABELS = {"job", "instance"}
"""Labels that Prometheus adds to scraped series."""
GRAFANA_VARIABLES = {"$__rate_interval": "5m"}

SELECTOR = re.compile(r"\b((?:chronik|process)_\w+|up)\b(?:\{([^}]*)\})?(\[)?")
TARGETS = [target for panel in PANELS for target in panel["targets"]]
VARIABLES = [each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
VALUES = re.compile(r"label_values\((.*), (\w+)\)")


def labels_of(name: str) -> set[str] | None:
    if name == "up":  # created by Prometheus
        return SCRAPE_LABELS
    if name not in SERIES:
        return None
    return {*SERIES[name].labels, *SCRAPE_LABELS, *(("le",) if name.endswith("_bucket") else ())}


def parse(expression: str) -> ExpressionType:
    for variable, value in GRAFANA_VARIABLES.items():
        expression = expression.replace(variable, value)
    return Expression(expression, labels_of).type


def expressions() -> list[str]:
    return [each["expr"] for each in (*RULES, *TARGETS)]


@pytest.mark.parametrize("expression", expressions())
def test_expression_uses_existing_metrics_and_labels(expression: str) -> None:
    assert parse(expression).kind == VECTOR


@pytest.mark.parametrize("query", VARIABLES)
def test_dashboard_variable_uses_existing_label(query: str) -> None:
    found = VALUES.fullmatch(query)
    assert found
    assert found[2] in parse(found[1]).labels


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target["expr"])
def test_legend_uses_labels_of_expression(target: dict[str, str]) -> None:
    labels = parse(target["expr"]).labels
    assert set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) <= labels


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "sum(up",
        "sum(up))",
        'up{job="chronik"',
        "up{job=chronik}",
        'up{api="Produce"}',
        "chronik_no_such_thing",
        "average(up)",
        "rate(chronik_requests_total)",
        "chronik_requests_total[5m]",
        "rate(sum(chronik_requests_total)[5m])",
        "rate(chronik_requests_total[5])",
        "sum by (group) (rate(chronik_requests_total[5m]))",
        "histogram_quantile(0.99, sum by (api) (rate(chronik_request_seconds_bucket[5m])))",
        "histogram_quantile(sum by (le) (rate(chronik_request_seconds_bucket[5m])), 0.99)",
        "topk(chronik_fenced)",
        "sum by (instance) (up) / sum by (job) (up)",
        "chronik_fenced and 1",
        "chronik_fenced > > 1",
        "time() > 1",
        "1 + 1",
    ],
)
def test_invalid_expression_is_rejected(expression: str) -> None:
    with pytest.raises((PromqlError, AssertionError)):
        assert parse(expression).kind == VECTOR


@pytest.mark.parametrize("expression", expressions())
def test_counters_use_rate_and_gauges_do_not(expression: str) -> None:
    """Log indexes are an exception: these gauges only grow, so that rate() is valid."""
    for name, _, has_range in SELECTOR.findall(expression):
        if name in SERIES:
            kind = SERIES[name].kind
            is_rated = bool(has_range)
            assert is_rated or kind == GAUGE, name
            assert not is_rated or kind in (COUNTER, HISTOGRAM) or name.endswith("_index"), name


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_has_severity_summary_and_action(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert len(rule["annotations"]["summary"]) > 20
    assert len(rule["annotations"]["action"]) > 40
    found = set(re.findall(r"\$labels\.(\w+)", "".join(rule["annotations"].values())))
    assert found <= parse(rule["expr"]).labels, "a label that the expression drops"


def test_alert_names_are_unique() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names) > 10


def test_dashboard_panels_do_not_overlap() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Overview", "Traffic", "Latency", "Replication", "Raft", "Groups", "Transactions", "Process"]
    occupied: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        position = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not cells & occupied, panel["title"]
        assert max(x for x, _ in cells) < 24
        occupied |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_panel_has_title_and_description() -> None:
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith(".")


def test_metric_names_follow_prometheus_conventions() -> None:
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"(chronik|process)(_[a-z0-9]+)+", name)
        assert name.endswith("_total") == (family.kind == COUNTER), name
        assert family.kind != HISTOGRAM or name.endswith("_seconds"), name
        assert "_ms" not in name
        assert family.help.endswith(".")


def test_docs_page_lists_every_metric() -> None:
    current = (ROOT / PAGE).read_text(encoding="utf-8")
    assert current == update_page(current), (
        f"{PAGE} is outdated: run .venv/bin/python -m chronik.console.metrics.listing"
    )
