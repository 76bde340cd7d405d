"""The charts of the history in a browser: reload, gaps, zoom, keyboard, tables and permissions."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chronik.admin.users import create_first_user_command
from chronik.history.metrics import Scope, list_scope_metrics
from chronik.history.series import STEP_S, Reading, Subject
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.web.browser import ConsoleTab, require_chromium, start_browser

pytestmark = pytest.mark.slow

PASSWORD = "correct horse"
TOPIC, GROUP = "orders", "billing"
HISTORY_S = 3 * 3600
GAP_S = 1200, 1800
"""The age of the samples that are missing, in seconds."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingNode]:
    """A node with a topic, a group, and a history of three hours with a gap of ten minutes."""
    require_chromium()
    started = AuthorizingNode(tmp_path_factory.mktemp("node"), "127.0.0.1:0", **{"super.users": "User:root"})
    try:
        started.propose(create_first_user_command("root", PASSWORD))
        root = ApiClient(started.http)
        assert root.log_in("root", PASSWORD).status == 200
        assert root.post("/topics", {"name": TOPIC, "partitions": 2}).status == 200
        assert root.post(f"/groups/{GROUP}/offsets", {"topics": [TOPIC], "to": "start"}).status == 200
        assert root.post("/users", {"name": "mallory", "password": PASSWORD, "iterations": 4096}).status == 201
        fill_history(started)
        yield started
    finally:
        started.close()


def fill_history(node: AuthorizingNode) -> None:
    now_s = int(time.time()) // STEP_S * STEP_S
    metrics = list_scope_metrics(Scope.NODE)
    for age_s in range(HISTORY_S, -1, -STEP_S):
        if GAP_S[0] <= age_s < GAP_S[1]:
            continue
        wave = 1 + math.sin(age_s / 600)
        counted = (HISTORY_S - age_s) * 1e5
        readings: dict[Scope, dict[Subject, Reading]] = {
            Scope.NODE: {(): Reading(tuple(counted if each.is_counter else 20 * wave for each in metrics))},
            Scope.REPLICAS: {(): Reading((counted / 100, 5e8))},
            Scope.TOPIC: {(TOPIC,): Reading((counted, counted / 100, 5e8))},
            Scope.GROUP: {(GROUP,): Reading((1000 * wave,))},
            Scope.GROUP_TOPIC: {(GROUP, TOPIC): Reading((1000 * wave,))},
        }
        node.record_history(now_s - age_s, readings)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with start_browser() as started:
        yield started


@pytest.fixture
def tab(browser: Any, node: AuthorizingNode) -> Iterator[ConsoleTab]:
    opened = ConsoleTab(browser, node.http)
    opened.log_in("root", PASSWORD)
    opened.page.get_by_role("heading", name="Overview").wait_for()
    yield opened
    opened.close()
    assert not opened.errors


def chart(tab: ConsoleTab, title: str) -> Any:
    return tab.page.get_by_label(title, exact=True)


def line(tab: ConsoleTab, title: str) -> str:
    """Return the path of the first line of a chart, once it is drawn. A busy node may miss samples of its own."""
    path = chart(tab, title).locator("path.line").first
    path.wait_for(state="attached")
    return str(path.get_attribute("d"))


def time_range(tab: ConsoleTab) -> tuple[int, int | None]:
    """Return the range in seconds and the end in milliseconds, as in the URL."""
    found = dict(re.findall(r"(range|end)=(\d+)", tab.page.url))
    return int(found.get("range", 3600)), int(found["end"]) if "end" in found else None


def test_charts_have_gaps_and_survive_a_reload(tab: ConsoleTab) -> None:
    assert line(tab, "Throughput").count("M") >= 2, "the missing samples divide the line"
    for title, text in (("Throughput", "97.7 KiB/s"), ("Records and requests", "100 k/s"), ("Lag", GROUP)):
        chart(tab, title).get_by_text(text).first.wait_for()
    tab.check_page("history")
    tab.page.reload()
    assert line(tab, "Throughput").count("M") >= 2


def test_range_buttons_show_other_times(tab: ConsoleTab) -> None:
    line(tab, "Throughput")
    for seconds, label in ((21_600, "6 h"), (86_400, "24 h"), (900, "15 min")):
        with tab.page.expect_response(f"**/history?*range_s={seconds}*"):
            tab.page.get_by_role("button", name=label, exact=True).click()
        assert time_range(tab) == (seconds, None)
    tab.press("history-earlier")
    assert time_range(tab)[1] is not None
    tab.page.locator('[data-action="history-later"]').wait_for()
    tab.press("history-now")
    assert time_range(tab) == (900, None)


def test_drag_zooms_all_charts(tab: ConsoleTab) -> None:
    line(tab, "Throughput")
    box = chart(tab, "Throughput").locator("svg.chart-picture").bounding_box()
    left, width, middle = box["x"] + 64, box["width"] - 72, box["y"] + box["height"] / 2
    tab.page.mouse.move(left + 0.2 * width, middle)
    tab.page.mouse.down()
    tab.page.mouse.move(left + 0.4 * width, middle, steps=4)
    tab.page.locator("rect.selection").wait_for(state="attached")
    with tab.page.expect_response("**/history?*end_ms=*"):
        tab.page.mouse.up()
    seconds, end_ms = time_range(tab)
    assert 600 <= seconds <= 840
    assert end_ms is not None
    assert abs(end_ms / 1000 - (time.time() - 0.6 * 3600)) < 300
    shared = tab.page.url
    tab.page.reload()
    line(tab, "Lag")
    assert tab.page.url == shared
    tab.press("history-now")


def test_keyboard_reads_values_and_zooms(tab: ConsoleTab) -> None:
    line(tab, "Throughput")
    frame = chart(tab, "Throughput").locator(".chart-frame")
    frame.focus()
    tab.page.keyboard.press("End")
    tab.page.keyboard.press("ArrowLeft")
    chart(tab, "Throughput").get_by_role("status").get_by_text(re.compile(r"^\d\d:\d\d:\d\d: In .+, Out ")).wait_for(
        state="attached"
    )
    chart(tab, "Throughput").locator("path.cross").wait_for(state="attached")
    tab.page.keyboard.press("+")
    assert time_range(tab)[0] == 1800
    tab.page.keyboard.press("-")
    tab.page.wait_for_url(lambda url: "range=1800" not in url)


def test_table_has_the_same_values(tab: ConsoleTab) -> None:
    line(tab, "Lag")
    chart(tab, "Lag").get_by_role("button", name="Table").click()
    rows = tab.page.get_by_role("table", name="Lag").get_by_role("row")
    rows.nth(5).wait_for()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s", rows.nth(1).inner_text())
    tab.check_page("history-table")
    chart(tab, "Lag").get_by_role("button", name="Chart").click()
    line(tab, "Lag")


def test_node_page_has_charts_of_the_node(tab: ConsoleTab) -> None:
    tab.open("/nodes/1?changed=1")
    for title in ("Throughput", "Latency", "CPU", "Memory", "Event-loop delay", "Disk"):
        assert line(tab, title)
    tab.check_page("node-history")


def test_group_page_has_the_lag_over_time(tab: ConsoleTab) -> None:
    tab.open(f"/groups/{GROUP}")
    assert line(tab, "Lag over time").count("M") >= 2
    for name in ("All topics", TOPIC):
        chart(tab, "Lag over time").locator(".legend").get_by_text(name).wait_for()
    tab.check_page("group-history")
    tab.open("/groups/unknown")
    tab.page.locator("main .notice-error").wait_for()
    assert not chart(tab, "Lag over time").is_visible()


def test_topic_page_has_charts_of_the_topic(tab: ConsoleTab) -> None:
    tab.open(f"/topics/{TOPIC}?tab=history")
    for title in ("Throughput", "Records", "Size", "Lag"):
        assert line(tab, title)
    chart(tab, "Lag").locator(".legend").get_by_text(GROUP).wait_for()
    tab.check_page("topic-history")


def test_user_without_permissions_sees_no_series(browser: Any, node: AuthorizingNode) -> None:
    tab = ConsoleTab(browser, node.http)
    tab.log_in("mallory", PASSWORD)
    chart(tab, "Throughput").get_by_text("Hidden: you need the permission Describe on the cluster.").wait_for()
    chart(tab, "Lag").get_by_text("No data in this time range.").wait_for()
    assert GROUP not in tab.page.locator("main").inner_text()
    tab.close()
