"""Topics, groups and pipelines in a browser, on a cluster of one node: what the console offers and what it shows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from chronik.protocol.permissions import AclOperation, AclResourceType
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.rest.conftest import PASSWORD, log_in_as, start_node_with_users
from tests.console.web.browser import ConsoleTab, require_chromium, start_browser

TOPIC, GROUP, PIPELINE = "orders", "billing", "shop"
RECORDS = 14


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizingNode]:
    """A node with a topic of one partition, a group without members, and a pipeline whose last report is old."""
    require_chromium()
    with start_node_with_users(tmp_path_factory.mktemp("node")) as started:
        for operation, kind in (
            (AclOperation.ALL, AclResourceType.TOPIC),
            (AclOperation.ALL, AclResourceType.GROUP),
        ):
            started.allow(operation, kind, "*")
        root = log_in_as(started, "root")
        for name in (TOPIC, "__chronik_pipelines"):
            assert root.post("/topics", {"name": name, "partitions": 1}).status == 200
        _report_progress(root)
        producer = Producer({"bootstrap.servers": started.bootstrap})
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number).encode(), partition=0)
        assert producer.flush(60) == 0
        assert root.post(f"/groups/{GROUP}/offsets", {"topics": [TOPIC], "to": "start"}).status == 200
        yield started


def _report_progress(root: ApiClient) -> None:
    """Report a table of an empty topic, as a driver does; records are produced afterwards."""
    progress = {"state": "running", "table": "tables/orders", "next_offsets": {"0": 0}, "high_watermarks": {"0": 0}}
    progress |= {"round_rows": 0, "round_seconds": 0.1, "at_ms": int(time.time() * 1000)}
    message = {"key": f"progress/{PIPELINE}/{TOPIC}", "value": json.dumps(progress)}
    assert root.post("/topics/__chronik_pipelines/messages", message).status == 201


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with start_browser() as running:
        yield running


@pytest.fixture(scope="module")
def root_tab(started: Any, node: AuthorizingNode) -> Iterator[ConsoleTab]:
    with open_tab(started, node, "root") as tab:
        yield tab


@pytest.fixture
def console(root_tab: ConsoleTab) -> Iterator[ConsoleTab]:
    """A tab in which the super user is logged in."""
    yield root_tab
    assert not root_tab.errors


@contextmanager
def open_tab(started: Any, node: AuthorizingNode, user: str) -> Iterator[ConsoleTab]:
    tab = ConsoleTab(started, node.http)
    tab.log_in(user, PASSWORD)
    tab.page.get_by_role("heading", name="Overview").wait_for()
    try:
        yield tab
    finally:
        tab.close()


@contextmanager
def active_consumer(node: AuthorizingNode) -> Iterator[None]:
    """Run a consumer of the group until the end of the context."""
    settings = {"bootstrap.servers": node.bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([TOPIC])
        deadline = time.monotonic() + 60
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        yield
    finally:
        consumer.close()


def actions_on(console: ConsoleTab) -> set[str]:
    """Return the actions of the enabled, visible buttons in the main part of the page."""
    buttons = console.page.locator("main button:visible:enabled")
    return set(buttons.evaluate_all("all => all.map(each => each.dataset.action)"))


def test_page_of_missing_topic_offers_no_actions(console: ConsoleTab) -> None:
    console.open("/topics/missing?do=produce")
    console.page.locator("main .notice-error").wait_for()
    assert actions_on(console) == set()
    assert console.page.locator("main .tabs:visible").count() == 0
    assert console.dialog().count() == 0


def test_page_of_topic_offers_actions(console: ConsoleTab) -> None:
    console.open(f"/topics/{TOPIC}?do=produce")
    console.dialog().get_by_role("heading", name=f"Produce a message to {TOPIC}").wait_for()
    console.cancel()
    assert {"write-message?", "delete-topic?", "move-partition?"} <= actions_on(console)


def test_plan_counts_one_partition_in_singular(console: ConsoleTab) -> None:
    console.open("/topics?do=create")
    console.fill(name="another", partitions="1", replication_factor="1")
    console.press("show-plan")
    console.dialog().locator(
        ".plan", has_text="create topic another with 1 partition and replication factor 1"
    ).wait_for()
    console.cancel()


def test_lag_of_pipeline_is_sum_of_partition_lags(console: ConsoleTab) -> None:
    console.open(f"/tables/{PIPELINE}")
    topics = console.page.get_by_role("table", name=f"Topics of {PIPELINE}")
    progress = console.page.get_by_role("table", name=f"Progress of {TOPIC} by partition")
    lags = [table.locator("td[data-label=Lag]").inner_text() for table in (topics, progress)]
    assert lags == [str(RECORDS), str(RECORDS)]


def test_reset_is_not_offered_while_group_has_members(console: ConsoleTab, node: AuthorizingNode) -> None:
    console.open(f"/groups/{GROUP}")
    assert {"reset-offsets?", "delete-group?", "forget-offset?"} <= actions_on(console)
    with active_consumer(node):
        console.expect_text("The group has 1 member: stop its consumers before you reset offsets or delete the group.")
        assert actions_on(console) & {"reset-offsets?", "delete-group?", "forget-offset?"} == set()
        console.open(f"/groups/{GROUP}?do=reset")
        console.expect_text("The group has 1 member")
        assert console.dialog().count() == 0
        console.check_page("group-with-members")
    console.page.locator('[data-action="reset-offsets?"]:enabled').wait_for()


def test_acls_are_listed_in_the_terms_of_kafka(console: ConsoleTab) -> None:
    console.open("/security?tab=acls")
    headers = console.page.get_by_role("table", name="ACLs").get_by_role("columnheader").all_inner_texts()
    expected = [
        "Principal",
        "Permission",
        "Operation",
        "Resource type",
        "Resource name",
        "Pattern type",
        "Host",
        "Actions",
    ]
    assert [each.strip() for each in headers] == expected
