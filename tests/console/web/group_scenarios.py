"""Browser scenarios for groups, transactions and tables."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from confluent_kafka import KafkaException

from tests.console.web.browser import ConsoleTab
from tests.console.web.cluster_inspector import ClusterInspector
from tests.console.web.secured_cluster import PIPELINE, SecuredCluster

GROUP = "billing"
ROWS_OF_ORDERS = (
    b'{"columns": ["_offset", "customer", "euros"], "rows": [["598", "ada", "51.38"], ["599", "<b>alan</b>", "17.04"],'
    b' ["600", null, "3.5"]]}'
)


def groups(console: ConsoleTab, inspector: ClusterInspector) -> None:
    page = console.page
    console.open("/groups")
    console.check_page("groups")
    page.get_by_role("button", name="Lag").click()
    page.locator("th[aria-sort='descending']").wait_for()
    page.get_by_role("link", name=GROUP).click()
    page.get_by_role("heading", name="Lag by partition").wait_for()
    console.check_page("group")
    ends = {partition: inspector.offsets("orders", partition)[1] for partition in range(3)}
    later = (datetime.now() + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S")
    resets: list[tuple[str, dict[str, str], dict[int, int]]] = [
        ("offset", {"value": "7"}, {0: 7, 1: 7}),
        ("on", {"value": "1"}, {0: 8, 1: 8}),
        ("start", {"topic": "orders"}, dict.fromkeys(range(3), 0)),
        ("time", {"time": later}, ends),
        ("back", {"value": "1"}, {partition: max(0, end - 1) for partition, end in ends.items()}),
        ("end", {}, ends),
    ]
    for kind, fields, expected in resets:
        console.press("reset-offsets?")
        console.fill(kind=kind, **fields)
        console.press("show-plan")
        console.expect_text("New offsets")
        if kind == "end":
            console.check_page("reset", "")
        console.confirm("reset-offsets")
        assert inspector.committed(GROUP) == expected, kind
    page.locator(".facts", has_text="0 records").wait_for()
    console.press("forget-offset?")
    console.confirm("forget-offset")
    console.expect_text("The offset was deleted.")
    assert inspector.committed(GROUP) == {1: ends[1], 2: ends[2]}
    console.press("delete-group?")
    console.confirm("delete-group", typed=GROUP)
    console.expect_text("There are no consumer groups yet.")
    assert GROUP not in inspector.groups()


def transactions(console: ConsoleTab, inspector: ClusterInspector) -> None:
    producer = inspector.cluster.open_transaction()
    console.open("/transactions")
    console.page.get_by_role("link", name="payments", exact=True).wait_for()
    console.page.get_by_role("link", name="payments-0").wait_for()
    console.check_page("transactions", "")
    assert inspector.transaction("billing-3") == "Ongoing"
    console.press("abort-transaction?")
    console.confirm("abort-transaction", plan="billing-3")
    console.expect_text("all committed records can be read")
    inspector.wait_for("open transaction", lambda: inspector.transaction("billing-3") == "Ongoing", False)
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)


def tables(console: ConsoleTab, cluster: SecuredCluster) -> None:
    page = console.page
    cluster.report_progress("orders", "payments")
    console.open("/tables")
    console.check_page("tables")
    page.get_by_role("link", name=PIPELINE).click()
    console.expect_text("the table was changed concurrently")
    page.get_by_role("link", name="payments").click()
    console.expect_text("Not reported yet.")
    page.get_by_role("link", name="orders").click()
    page.get_by_role("heading", name="Progress by partition").wait_for()
    page.get_by_role("table", name="Columns of orders").get_by_text("bigint").first.wait_for()
    with cluster.driver() as responses:
        responses.append(b'{"error": "there is no table at tables/orders"}')
        cluster.report_progress("orders")
        console.press("show-rows")
        console.expect_text("the driver cannot read the table: there is no table at tables/orders")
        responses.append(ROWS_OF_ORDERS)
        cluster.report_progress("orders")
        console.press("show-rows")
        rows = page.get_by_role("table", name="Rows of orders")
        rows.get_by_text("17.04").wait_for()
        assert rows.get_by_role("columnheader").all_inner_texts() == ["_offset", "customer", "euros"]
        assert rows.get_by_text("null", exact=True).count() == 1
        console.check_page("table", "")
    cluster.report_progress("orders", state="stopped")
    page.reload()
    console.expect_text("The pipeline has stopped: rows can be read here while it runs.")
    assert not page.locator('[data-action="show-rows"]').count()
    console.press("copy-command")
    console.expect_text("Copy command: copied.")
    assert console.clipboard_text() == 'chronik pipeline sql "SELECT * FROM orders LIMIT 20"'
