"""All that can be done with groups and transactions; and with tables, of which pipelines tell."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from confluent_kafka import KafkaException

from tests.console.web.browser import Console
from tests.console.web.secured_cluster import PIPELINE, SecuredCluster
from tests.console.web.seen import Seen

GROUP = "billing"
ROWS_OF_ORDERS = (
    b'{"columns": ["_offset", "customer", "euros"], "rows": [["598", "ada", "51.38"], ["599", "<b>alan</b>", "17.04"],'
    b' ["600", null, "3.5"]]}'
)


def groups(console: Console, seen: Seen) -> None:
    page = console.page
    console.open("/groups")
    console.look("groups")
    page.get_by_role("button", name="Lag").click()
    page.locator("th[aria-sort='descending']").wait_for()
    page.get_by_role("link", name=GROUP).click()
    page.get_by_role("heading", name="Lag by partition").wait_for()
    console.look("group")
    ends = {partition: seen.offsets("orders", partition)[1] for partition in range(3)}
    later = (datetime.now() + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%S")
    ways: list[tuple[str, dict[str, str], dict[int, int]]] = [
        ("offset", {"value": "7"}, {0: 7, 1: 7}),
        ("on", {"value": "1"}, {0: 8, 1: 8}),
        ("start", {"topic": "orders"}, dict.fromkeys(range(3), 0)),
        ("time", {"time": later}, ends),
        ("back", {"value": "1"}, {partition: max(0, end - 1) for partition, end in ends.items()}),
        ("end", {}, ends),
    ]
    for kind, given, expected in ways:
        console.press("reset-offsets?")
        console.fill(kind=kind, **given)
        console.press("show-plan")
        console.sees("What would move")
        if kind == "end":
            console.look("reset", "")
        console.does("reset-offsets")
        assert seen.committed(GROUP) == expected, kind
    page.locator(".facts", has_text="0 records").wait_for()
    console.press("forget-offset?")
    console.does("forget-offset")
    console.sees("Forgotten.")
    assert seen.committed(GROUP) == {1: ends[1], 2: ends[2]}
    console.press("delete-group?")
    console.does("delete-group", typed=GROUP)
    console.sees("Nobody reads as a group yet.")
    assert GROUP not in seen.groups()


def transactions(console: Console, seen: Seen) -> None:
    producer = seen.cluster.open_transaction()
    console.open("/transactions")
    console.page.get_by_role("link", name="payments").wait_for()
    console.look("transactions", "")
    assert seen.transaction("billing-3") == "Ongoing"
    console.press("abort-transaction?")
    console.does("abort-transaction", plan="billing-3")
    console.sees("every committed record can be read")
    seen.until("whether it is open", lambda: seen.transaction("billing-3") == "Ongoing", False)
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)


def tables(console: Console, cluster: SecuredCluster) -> None:
    page = console.page
    cluster.tell_of_tables("orders", "payments")
    console.open("/tables")
    console.look("tables")
    page.get_by_role("link", name=PIPELINE).click()
    console.sees("the table was changed by somebody else")
    page.get_by_role("link", name="payments").click()
    console.sees("Not told yet.")
    page.get_by_role("link", name="orders").click()
    page.get_by_role("heading", name="Progress by partition").wait_for()
    page.get_by_role("table", name="Columns of orders").get_by_text("bigint").first.wait_for()
    with cluster.driver() as answers:
        answers.append(b'{"error": "there is no table at tables/orders"}')
        cluster.tell_of_tables("orders")
        console.press("show-rows")
        console.sees("the driver has no rows to show: there is no table at tables/orders")
        answers.append(ROWS_OF_ORDERS)
        cluster.tell_of_tables("orders")
        console.press("show-rows")
        rows = page.get_by_role("table", name="Rows of orders")
        rows.get_by_text("17.04").wait_for()
        assert rows.get_by_role("columnheader").all_inner_texts() == ["_offset", "customer", "euros"]
        assert rows.get_by_text("null", exact=True).count() == 1
        console.look("table", "")
    cluster.tell_of_tables("orders", state="stopped")
    console.press("show-rows")
    console.sees("has stopped: rows are shown while it runs")
    console.press("copy-command")
    console.sees("Copy the command: copied.")
    assert console.copied() == 'chronik pipeline sql "SELECT * FROM orders LIMIT 20"'
