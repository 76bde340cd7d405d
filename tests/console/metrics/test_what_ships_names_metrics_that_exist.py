"""The dashboard and the alert rules in packaging/, held against the table of metrics; and the page of the docs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from chronik.console.metrics.listing import PAGE, page
from chronik.console.metrics.table import COUNTER, FAMILIES, GAUGE, HISTOGRAM
from tests.console.metrics.promql import VECTOR, Expression, Found, NotPromql

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
OF_SCRAPERS = {"job", "instance"}
"""Labels that whoever scrapes adds."""
OF_GRAFANA = {"$__rate_interval": "5m"}

SELECTOR = re.compile(r"\b((?:chronik|process)_\w+|up)\b(?:\{([^}]*)\})?(\[)?")
TARGETS = [target for panel in PANELS for target in panel["targets"]]
VARIABLES = [each["query"]["query"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
VALUES = re.compile(r"label_values\((.*), (\w+)\)")


def labels_of(name: str) -> set[str] | None:
    if name == "up":  # whoever scrapes makes it
        return OF_SCRAPERS
    if name not in SERIES:
        return None
    return {*SERIES[name].labels, *OF_SCRAPERS, *(("le",) if name.endswith("_bucket") else ())}


def read(expression: str) -> Found:
    for variable, value in OF_GRAFANA.items():
        expression = expression.replace(variable, value)
    return Expression(expression, labels_of).found


def expressions() -> list[str]:
    return [each["expr"] for each in (*RULES, *TARGETS)]


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_asks_for_what_a_node_tells(expression: str) -> None:
    assert read(expression).kind == VECTOR


@pytest.mark.parametrize("query", VARIABLES)
def test_a_variable_takes_the_values_of_a_label_that_is_there(query: str) -> None:
    told = VALUES.fullmatch(query)
    assert told
    assert told[2] in read(told[1]).labels


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target["expr"])
def test_a_legend_names_labels_that_the_expression_keeps(target: dict[str, str]) -> None:
    labels = read(target["expr"]).labels
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
def test_what_is_no_expression_is_found_out(expression: str) -> None:
    with pytest.raises((NotPromql, AssertionError)):
        assert read(expression).kind == VECTOR


@pytest.mark.parametrize("expression", expressions())
def test_counters_are_asked_for_their_rate_and_gauges_are_not(expression: str) -> None:
    """But for indexes of logs, which are gauges that only grow, and can be rated as counters are."""
    for name, _, has_range in SELECTOR.findall(expression):
        if name in SERIES:
            kind = SERIES[name].kind
            is_rated = bool(has_range)
            assert is_rated or kind == GAUGE, name
            assert not is_rated or kind in (COUNTER, HISTOGRAM) or name.endswith("_index"), name


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert len(rule["annotations"]["summary"]) > 20
    assert len(rule["annotations"]["action"]) > 40
    told = set(re.findall(r"\$labels\.(\w+)", "".join(rule["annotations"].values())))
    assert told <= read(rule["expr"]).labels, "a label that the expression has dropped"


def test_names_of_alerts_are_unique() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names) > 10


def test_the_dashboard_has_a_row_for_each_subject_and_no_panel_lies_on_another() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Overview", "Traffic", "Latency", "Replication", "Raft", "Groups", "Transactions", "Process"]
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_panel_has_a_title_and_says_what_it_shows() -> None:
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith(".")


def test_names_follow_the_conventions_of_prometheus() -> None:
    for name, family in FAMILIES.items():
        assert re.fullmatch(r"(chronik|process)(_[a-z0-9]+)+", name)
        assert name.endswith("_total") == (family.kind == COUNTER), name
        assert family.kind != HISTOGRAM or name.endswith("_seconds"), name
        assert "_ms" not in name
        assert family.help.endswith(".")


def test_the_page_of_the_docs_tells_every_metric() -> None:
    written = (ROOT / PAGE).read_text(encoding="utf-8")
    assert written == page(written), f"{PAGE} is written anew by .venv/bin/python -m chronik.console.metrics.listing"
