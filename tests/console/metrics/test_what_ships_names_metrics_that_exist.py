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
OF_PROMETHEUS = {"up"}
"""Series that whoever scrapes makes."""
OF_SCRAPERS = {"job", "instance", "le"}
"""Labels that scrapers add, or histograms have."""

SELECTOR = re.compile(r"\b((?:chronik|process)_\w+|up)\b(?:\{([^}]*)\})?(\[)?")
MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
GROUPING = re.compile(r"\bby \(([^)]*)\)")


def expressions() -> list[str]:
    queries = [
        variable["query"]["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"
    ]
    return [
        *(rule["expr"] for rule in RULES),
        *(each["expr"] for panel in PANELS for each in panel["targets"]),
        *queries,
    ]


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_asks_for_what_a_node_tells(expression: str) -> None:
    asked = SELECTOR.findall(expression)
    assert asked
    labels = set(OF_SCRAPERS)
    for name, matchers, _ in asked:
        assert name in SERIES.keys() | OF_PROMETHEUS, name
        own = set(SERIES[name].labels) if name in SERIES else set()
        assert set(MATCHER.findall(matchers)) <= own | OF_SCRAPERS
        labels |= own
    for grouping in GROUPING.findall(expression):
        assert {label.strip() for label in grouping.split(",")} <= labels
    assert expression.count("(") == expression.count(")")
    assert expression.count("{") == expression.count("}")


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
    by = GROUPING.findall(rule["expr"])
    told = set(re.findall(r"\$labels\.(\w+)", "".join(rule["annotations"].values())))
    kept = {label.strip() for each in by for label in each.split(",")} if by else None
    if kept is not None:
        assert told <= kept, "a label that the expression has dropped"
    elif re.search(r"\b(sum|max)\(", rule["expr"]):
        assert not told


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
