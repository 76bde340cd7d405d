"""The console in a real browser, on a cluster of three nodes that asks everybody who they are: every page and every
action, by mouse and by keys, light and dark, also on a phone; and what it says when a node is gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.web.browser import PHONE, TAKES_PICTURES, WAIT_MS, Console, browser
from tests.console.web.secured_cluster import ADA, ADMIN, PIPELINE, SecuredCluster

SECONDS_OF_TRAFFIC = 40 if TAKES_PICTURES else 0
"""So that pictures have charts with something in them."""

pytestmark = pytest.mark.xdist_group("cluster")


ROWS_OF_ORDERS = (
    b'{"columns": ["_offset", "customer", "euros"], "rows": [["598", "ada", "51.38"], ["599", "<b>alan</b>", "17.04"],'
    b' ["600", null, "3.5"]]}'
)


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def cluster(started: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    secured = SecuredCluster(tmp_path_factory.mktemp("cluster"))
    with secured:
        secured.fill()
        yield secured


@pytest.fixture
def console(started: Any, cluster: SecuredCluster) -> Iterator[Console]:
    tab = Console(started, str(cluster[1].http))
    yield tab
    tab.close()
    assert not tab.faults


def test_every_page_and_every_action(console: Console, cluster: SecuredCluster) -> None:
    producer = cluster.open_transaction()
    logging_in(console, cluster)
    overview(console, cluster)
    topics(console)
    messages(console, cluster)
    groups(console)
    transactions(console)
    nodes(console)
    security(console)
    tables(console, cluster)
    jumping(console)
    producer.purge()


def logging_in(console: Console, cluster: SecuredCluster) -> None:
    console.log_in(ADMIN, "wrong")
    console.sees("the name or the password is wrong")
    console.look("login")
    console.say_who(ADMIN, cluster.passwords[ADMIN])
    console.sees("3 of 3 agree")


def overview(console: Console, cluster: SecuredCluster) -> None:
    page = console.page
    for second in range(SECONDS_OF_TRAFFIC):
        cluster.produce("orders", 30 + 20 * (second % 7), 1000 * second)
        page.wait_for_timeout(1000)
    assert page.locator("article").count() == 3
    page.locator(".pulse", has_text="Live").wait_for()
    console.look("overview", "", "-dark", "-phone-dark")
    for chart in ("Throughput", "Latency", "Lag"):
        page.get_by_label(chart, exact=True).get_by_role("button", name="Table").click()
        page.get_by_role("table", name=chart).wait_for()
    console.look("overview-tables")
    page.reload()
    page.get_by_role("table", name="Throughput").wait_for()  # the address holds what is shown


def topics(console: Console) -> None:
    page = console.page
    console.open("/topics")
    console.look("topics")
    page.keyboard.press("/")
    page.keyboard.type("paym")
    page.get_by_role("link", name="orders").wait_for(state="detached")
    assert "search=paym" in page.url
    console.button("Create a topic").click()
    console.dialog().get_by_label("Name", exact=True).fill("from.the.browser")
    console.dialog().get_by_label("Partitions").fill("2")
    console.look("create")
    console.button("Show the plan").click()
    console.confirm("Create", plan="from.the.browser")
    page.get_by_role("heading", name="from.the.browser").wait_for()
    page.get_by_text("3 of 3").nth(1).wait_for()
    console.button("More partitions").click()
    console.confirm("Add partitions")
    page.get_by_text("3 of 3").nth(2).wait_for()
    _configs(console)
    page.get_by_role("link", name="Partitions").click()
    console.button("Delete").click()
    assert console.dialog().get_by_role("button", name="Delete the topic").is_disabled()
    console.confirm("Delete the topic", typed="from.the.browser")
    page.get_by_role("heading", name="Topics").wait_for()


def _configs(console: Console) -> None:
    console.page.get_by_role("link", name="Configs").click()
    console.settle()
    console.look("configs")
    console.button("Change", row="retention.ms").click()
    console.dialog().get_by_label("Value").fill("3600000")
    console.button("Show the plan").click()
    console.confirm("Save", plan="retention.ms")
    console.page.locator("tr", has_text="retention.ms").get_by_text("this topic").wait_for()
    console.button("Reset", row="retention.ms").click()
    console.confirm("Reset", plan="retention.ms")
    console.page.locator("tr", has_text="retention.ms").get_by_text("this topic").wait_for(state="detached")


def messages(console: Console, cluster: SecuredCluster) -> None:
    page = console.page
    console.open("/topics/orders")
    page.get_by_text("3 of 3").first.wait_for()
    console.look("topic", "")
    console.button("Write a message").click()
    console.dialog().get_by_label("Key", exact=True).fill("grace")
    console.dialog().get_by_label("Value", exact=True).fill('{"wonder": 9007199254740993}')
    console.dialog().get_by_label("Value is").select_option("json")
    console.look("produce")
    console.confirm("Write")
    console.sees("Written to partition")
    page.get_by_role("link", name="Messages").click()
    page.locator("tr.message").first.wait_for()
    page.locator("tr.message", has_text="wonder").get_by_role("button").click()
    assert "9007199254740993" in page.locator(".detail pre").last.inner_text()  # digit by digit
    page.locator("tr.message", has_text="euros").first.get_by_role("button").click()
    console.look("messages", "", "-phone")
    for view, shown in (("Python", "TopicPartition("), ("CLI", "chronik consume orders"), ("SQL", "_offset =")):
        page.get_by_role("button", name=view, exact=True).click()
        assert shown in page.locator(".detail pre").last.inner_text()
    page.get_by_role("link", name="Search").click()
    page.get_by_label("Contains").fill("wonder")
    console.button("Search").click()
    console.sees("All was looked at.")
    page.locator("tr.message").first.wait_for()
    assert page.locator("tr.message").count() == 1
    console.look("search")
    page.get_by_role("link", name="Live tail").click()
    console.sees("Listening")
    cluster.produce("orders", 3, 9000)
    page.locator("tr.message").nth(2).wait_for()
    console.button("Pause").click()
    console.sees("Paused.")
    console.look("tail")
    page.get_by_role("link", name="Partitions").click()
    page.locator("tr[data-key='1']").get_by_role("button", name="Trim").click()
    console.dialog().get_by_label("Delete what is before offset").fill("10")
    console.confirm("Delete records", typed="orders")
    console.sees("begins at")
    console.button("Move", row="node").click()
    console.dialog().get_by_label("Copies on nodes").fill("2, 3, 1")
    console.button("Show the plan").click()
    console.confirm("Move")


def groups(console: Console) -> None:
    page = console.page
    console.open("/groups")
    console.look("groups")
    page.get_by_role("link", name="billing").click()
    page.get_by_role("heading", name="Lag by partition").wait_for()
    console.look("group")
    console.button("Reset offsets").click()
    console.dialog().get_by_label("Go to").select_option("end")
    console.button("Show the plan").click()
    console.sees("What would move")
    console.look("reset", "")
    console.confirm("Reset offsets")
    page.locator(".facts", has_text="0 records").wait_for()
    console.button("Forget").click()
    console.confirm("Forget")
    console.sees("Forgotten.")
    console.button("Delete").click()
    console.confirm("Delete the group", typed="billing")
    console.sees("Nobody reads as a group yet.")


def transactions(console: Console) -> None:
    console.open("/transactions")
    console.page.get_by_role("link", name="payments").wait_for()
    console.look("transactions", "")
    console.button("Abort").click()
    console.confirm("Abort", plan="billing-3")
    console.sees("every committed record can be read")


def nodes(console: Console) -> None:
    page = console.page
    console.open("/nodes")
    console.look("nodes")
    for tab in ("moving", "configs"):
        console.open(f"/nodes?tab={tab}")
        console.look(f"nodes-{tab}")
    console.open("/nodes?do=add")
    for label, value in (("Id", "9"), ("Host", "127.0.0.1"), ("Port", "19999")):
        console.dialog().get_by_label(label).fill(value)
    console.button("Show the plan").click()
    console.dialog().locator(".plan, .notice").first.wait_for()
    console.cancel()
    console.open("/nodes/3")
    console.look("node")
    console.button("May it stop?").click()
    page.locator(".notice").first.wait_for()
    console.button("Drain").click()
    console.dialog().locator(".plan li").first.wait_for()
    console.look("drain", "")
    console.confirm("Drain")
    console.button("Undrain").click()
    console.confirm("Undrain")
    console.button("Drain").wait_for()
    for action in ("Take the vote", "Remove"):
        console.button(action).click()
        console.dialog().locator(".plan, .notice").first.wait_for()
        console.cancel()


def security(console: Console) -> None:
    console.open("/security")
    console.look("users")
    console.button("Add a user").click()
    console.dialog().get_by_label("Name").fill("eve")
    console.dialog().get_by_label("Password").fill("a long password")
    console.confirm("Add the user")
    console.button("Delete", row="eve").click()
    console.confirm("Delete the user", typed="eve")
    console.page.locator("tr", has_text="eve").wait_for(state="detached")
    console.open("/security?tab=acls")
    console.button("Give a right").click()
    console.dialog().get_by_label("Who").fill("User:eve")
    console.dialog().get_by_label("Name").fill("orders")
    console.confirm("Give the right")
    console.page.locator("tr", has_text="User:eve").wait_for()
    console.look("rights", "")
    console.button("Take away", row="User:eve").click()
    console.confirm("Take it away")
    console.page.locator("tr", has_text="User:eve").wait_for(state="detached")
    console.open("/security?tab=quotas")
    console.button("Set a quota").click()
    console.dialog().get_by_label("Name").fill("eve")
    console.dialog().get_by_label("Bytes written per second").fill("1048576")
    console.confirm("Set the limits")
    console.sees("1 MiB/s")
    console.look("quotas")
    console.button("Remove", row="eve").click()
    console.confirm("Remove")
    console.sees("Nobody is limited.")


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
        console.button("Show rows").click()
        console.sees("the driver has no rows to show: there is no table at tables/orders")
        answers.append(ROWS_OF_ORDERS)
        cluster.tell_of_tables("orders")
        console.button("Show rows").click()
        rows = page.get_by_role("table", name="Rows of orders")
        rows.get_by_text("17.04").wait_for()
        assert rows.get_by_role("columnheader").all_inner_texts() == ["_offset", "customer", "euros"]
        assert rows.get_by_text("null", exact=True).count() == 1
        console.look("table", "")
    cluster.tell_of_tables("orders", state="stopped")
    console.button("Show rows again").click()
    console.sees("has stopped: rows are shown while it runs")


def jumping(console: Console) -> None:
    page = console.page
    console.open("/overview")
    page.keyboard.press("Control+k")
    page.keyboard.type("orders")
    page.get_by_role("option", name="orders").first.wait_for()
    console.look("palette")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="orders").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("n")
    page.get_by_role("heading", name="Nodes").wait_for()
    page.set_viewport_size(PHONE)
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name="Groups").click()
    page.get_by_role("heading", name="Groups").wait_for()


def test_who_may_little_sees_little(started: Any, cluster: SecuredCluster) -> None:
    tab = Console(started, str(cluster[2].http))
    tab.log_in(ADA, cluster.passwords[ADA])
    tab.page.get_by_role("heading", name="Overview").wait_for()
    tab.open("/topics")
    tab.page.get_by_role("link", name="orders").wait_for()
    assert tab.page.get_by_role("link", name="payments").count() == 0
    tab.open("/topics/orders?tab=messages")
    tab.page.locator("tr.message").first.wait_for()
    for place in ("/nodes", "/security", "/security?tab=acls"):
        tab.open(place)
        tab.page.locator("main .notice-error").first.wait_for()
    assert tab.page.locator(".gone-bar").is_hidden()
    tab.button("Log out").click()
    tab.page.get_by_label("Password").wait_for()
    tab.close()
    assert not tab.faults


def test_a_node_that_is_gone_is_shown_as_gone_and_comes_back(console: Console, cluster: SecuredCluster) -> None:
    page = console.page
    console.log_in(ADMIN, cluster.passwords[ADMIN])
    console.sees("3 of 3 agree")
    cluster[3].kill()
    page.get_by_label("Node 3", exact=True).get_by_text("gone").wait_for()
    page.locator(".attention").first.wait_for()
    console.look("a-node-is-gone", "")
    cluster[3].restart()
    page.get_by_label("Node 3", exact=True).get_by_text("online").wait_for()
    console.sees("3 of 3 agree")
    cluster[1].pause()
    page.locator(".gone-bar", has_text="Node 1 does not answer.").wait_for()
    page.locator(".gone-bar", has_text="old").wait_for()
    console.look("gone", "")
    cluster[1].resume()
    page.locator(".gone-bar").wait_for(state="hidden", timeout=WAIT_MS)
    page.locator(".pulse", has_text="Live").wait_for()
    # Sessions are kept in memory: after a restart it asks again, and goes on where one was.
    console.open("/groups?search=b")
    cluster[1].kill()
    page.locator(".gone-bar").wait_for()
    cluster[1].restart()
    console.say_who(ADMIN, cluster.passwords[ADMIN])
    page.get_by_role("heading", name="Groups").wait_for()
    assert "search=b" in page.url
