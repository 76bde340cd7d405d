"""Topics, groups and pipelines in a browser, on a cluster of one node: what the console offers and what it shows."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from chronik.protocol.permissions import AclOperation, AclResourceType
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.rest.conftest import PASSWORD, log_in_as, start_node_with_users
from tests.console.web.browser import ConsoleTab, require_chromium, start_browser
from tests.console.web.buttons import PRESSED_ON_ONE_NODE

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
    progress: dict[str, Any] = {"state": "running", "table": "tables/orders"}
    progress |= {"next_offsets": {"0": 0}, "high_watermarks": {"0": 0}}
    progress |= {"round_rows": 0, "round_seconds": 0.1, "at_ms": int(time.time() * 1000)}
    message = {"key": f"progress/{PIPELINE}/{TOPIC}", "value": json.dumps(progress)}
    assert root.post("/topics/__chronik_pipelines/messages", message).status == 201


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with start_browser() as running:
        yield running


@pytest.fixture(scope="module")
def pressed() -> set[str]:
    return set()


@pytest.fixture(scope="module")
def root_tab(started: Any, node: AuthorizingNode, pressed: set[str]) -> Iterator[ConsoleTab]:
    with open_tab(started, node, "root", pressed) as tab:
        yield tab


@pytest.fixture
def console(root_tab: ConsoleTab) -> Iterator[ConsoleTab]:
    """A tab in which the super user is logged in."""
    yield root_tab
    assert not root_tab.errors


@contextmanager
def open_tab(started: Any, node: AuthorizingNode, user: str, pressed: set[str] | None = None) -> Iterator[ConsoleTab]:
    tab = ConsoleTab(started, node.http, pressed)
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


@contextmanager
def granted(root: ApiClient, *acls: tuple[str, str, str]) -> Iterator[None]:
    """Allow alice operations within the context; an ACL is (resource type, name, operation)."""
    created = [
        {"principal": "User:alice", "resource": kind, "name": name, "operation": operation}
        for kind, name, operation in acls
    ]
    assert root.post("/acls", {"acls": created}).status == 201
    try:
        yield
    finally:
        assert root.post("/acls/delete", {"acls": created}).status == 200


def actions_on(console: ConsoleTab) -> set[str]:
    """Return the actions of the enabled, visible buttons in the page, without those that only change the view."""
    buttons = console.page.locator("main button:visible:enabled")
    found = set(buttons.evaluate_all("all => all.map(each => each.dataset.action)"))
    return {each for each in found if each not in ("sort", "chart-or-table") and not each.startswith("history-")}


def close_form(console: ConsoleTab) -> None:
    """Close a form that the URL has opened, and wait until the URL has changed."""
    console.cancel()
    console.page.wait_for_url(lambda url: "do=" not in url)


def test_page_of_missing_topic_offers_no_actions(console: ConsoleTab) -> None:
    console.open("/topics/missing?do=produce")
    console.page.locator("main .notice-error").wait_for()
    assert actions_on(console) == set()
    assert console.page.locator("main .tabs:visible").count() == 0
    assert console.dialog().count() == 0


def test_page_of_topic_offers_actions(console: ConsoleTab) -> None:
    console.open(f"/topics/{TOPIC}?do=produce")
    console.dialog().get_by_role("heading", name=f"Produce a message to {TOPIC}").wait_for()
    close_form(console)
    assert {"write-message?", "delete-topic?", "move-partition?"} <= actions_on(console)


def test_plan_counts_one_partition_in_singular(console: ConsoleTab) -> None:
    console.open("/topics?do=create")
    console.fill(name="another", partitions="1", replication_factor="1")
    console.press("show-plan")
    console.dialog().locator(
        ".plan", has_text="create topic another with 1 partition and replication factor 1"
    ).wait_for()
    close_form(console)


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


NO_PERMISSIONS = {
    "/topics": "No topics are visible to you.",
    "/groups": "No groups are visible to you.",
    "/schemas": "No schemas are visible to you",
    "/transactions": "No transactional ids are visible to you.",
    "/tables": "Hidden: you need the permission Read on topic __chronik_pipelines.",
    "/nodes": "Hidden: you need the permission Describe on the cluster.",
    "/nodes/1": "Hidden: you need the permission Describe on the cluster.",
    "/nodes?tab=reassignments": "Hidden: you need the permission Describe on the cluster.",
    "/nodes?tab=configs": "Hidden: you need the permission DescribeConfigs on the cluster.",
    "/security": "Hidden: you need the permission Describe on the cluster.",
    "/security?tab=acls": "Hidden: you need the permission Describe on the cluster.",
    "/security?tab=quotas": "Hidden: you need the permission DescribeConfigs on the cluster.",
    f"/topics/{TOPIC}": f"Hidden: you need the permission Describe on topic {TOPIC}.",
    f"/groups/{GROUP}": f"Hidden: you need the permission Describe on group {GROUP}.",
}


def test_user_without_permissions_gets_labels_instead_of_empty_pages(started: Any, node: AuthorizingNode) -> None:
    with open_tab(started, node, "mallory") as tab:
        for path, expected in NO_PERMISSIONS.items():
            tab.open(path)
            tab.expect_text(expected)
            shown = tab.page.locator("main").inner_text()
            named = () if path.startswith((f"/topics/{TOPIC}", f"/groups/{GROUP}")) else (TOPIC, GROUP)
            assert not [word for word in ("There are no", *named) if word in shown], path
            assert actions_on(tab) == set(), path
            if path == "/groups":
                tab.check_page("groups-hidden")
        tab.press("jump?")
        tab.page.keyboard.type("create")
        tab.expect_text("No results.")
        tab.cancel()
        for path in ("/topics?do=create", "/nodes?do=add", "/security?do=add-user", f"/groups/{GROUP}?do=reset"):
            tab.open(path)
            assert tab.dialog().count() == 0, path
        assert not tab.errors


def test_page_offers_only_permitted_operations(started: Any, node: AuthorizingNode) -> None:
    root = log_in_as(node, "root")
    topic, group = f"/topics/{TOPIC}", f"/groups/{GROUP}"
    with granted(root, ("topic", TOPIC, "describe")), open_tab(started, node, "alice") as tab:
        page = tab.page
        tab.open("/topics")
        tab.page.locator(f"tr[data-key={TOPIC}]", has_text="hidden").wait_for()
        tab.expect_text("Hidden: you need the permission Describe on a topic to see it in this list.")
        tab.open(topic)
        page.locator(".facts", has_text="hidden").wait_for()
        assert actions_on(tab) == set()
        page.get_by_role("link", name="Messages").click()
        tab.expect_text(f"Hidden: you need the permission Read on topic {TOPIC}.")
        page.get_by_role("link", name="Configs").click()
        tab.expect_text(f"Hidden: you need the permission DescribeConfigs on topic {TOPIC}.")
        assert actions_on(tab) == set()
        tab.check_page("topic-hidden")
        with granted(root, ("topic", TOPIC, "describe-configs"), ("group", GROUP, "describe")):
            tab.open(f"{topic}?tab=configs&changed=")
            page.get_by_text("cleanup.policy", exact=True).wait_for()
            assert actions_on(tab) == set()
            tab.open(group)
            page.get_by_role("heading", name="Lag by partition").wait_for()
            assert actions_on(tab) == set()
        with granted(root, ("topic", TOPIC, "write"), ("topic", TOPIC, "alter-configs"), ("topic", TOPIC, "delete")):
            tab.open(topic)
            page.locator('[data-action="write-message?"]').wait_for()
            assert actions_on(tab) == {"write-message?", "delete-topic?", "delete-records?"}
            tab.open(f"{topic}?tab=configs")
            page.locator('[data-action="set-config?"]').wait_for()
        with granted(root, ("topic", TOPIC, "read"), ("group", GROUP, "read")):
            tab.open(f"{topic}?tab=messages")
            page.locator("tr.message").first.wait_for()
            tab.open(group)
            page.locator('[data-action="reset-offsets?"]:enabled').wait_for()
            assert actions_on(tab) == {"reset-offsets?"}
        assert not tab.errors


def test_offsets_of_topics_without_permission_are_labeled(started: Any, node: AuthorizingNode) -> None:
    with (
        granted(log_in_as(node, "root"), ("group", GROUP, "describe")),
        open_tab(started, node, "alice") as tab,
    ):
        tab.open(f"/groups/{GROUP}")
        tab.expect_text("No committed offsets are visible to you.")
        tab.page.locator(".facts", has_text="hidden").wait_for()


def test_topic_lists_its_consumers_and_acls(console: ConsoleTab, node: AuthorizingNode) -> None:
    page = console.page
    with active_consumer(node):
        console.open(f"/topics/{TOPIC}")
        page.get_by_role("link", name="Consumers").click()
        row = page.locator(f"tr[data-key={GROUP}]")
        row.get_by_text(f"partition 0: {RECORDS}").wait_for()
        row.get_by_text("on /127.0.0.1").wait_for()
        console.check_page("topic-consumers")
        console.open(f"/groups/{GROUP}")
        member = page.get_by_role("table", name=f"Members of {GROUP}").locator("tbody tr")
        member.locator("td[data-label=Lag]", has_text=str(RECORDS)).wait_for()
        page.locator(".facts", has_text="Behind since").get_by_text(re.compile(r"[\d:-]+ [\d:]+ UTC \(")).wait_for()
    console.open(f"/topics/{TOPIC}")
    page.get_by_role("link", name="ACLs").click()
    page.get_by_role("row", name="User:ANONYMOUS").get_by_text("literal").wait_for()
    console.check_page("topic-acls")
    console.press("create-acl?")
    assert console.dialog().locator("[name=name]").input_value() == TOPIC
    console.page.locator("datalist option[value='User:alice']").wait_for(state="attached")
    console.page.locator(f"datalist option[value='{TOPIC}']").wait_for(state="attached")
    console.fill(principal="carol")
    console.confirm("create-acl")
    row = page.get_by_role("row", name="User:carol")
    row.locator('[data-action="delete-acl?"]').click()
    console.confirm("delete-acl")
    row.wait_for(state="detached")


def test_reset_by_duration_previews_each_partition(console: ConsoleTab) -> None:
    console.open(f"/groups/{GROUP}")
    console.press("reset-offsets?")
    console.fill(kind="end")
    console.press("show-plan")
    said = console.dialog().locator(".notice span").last
    said.wait_for()
    assert said.inner_text() == f"0 records will be consumed again, {RECORDS} will be skipped."
    console.confirm("reset-offsets")
    console.press("reset-offsets?")
    console.fill(kind="duration", amount="2", unit="D")
    console.press("show-plan")
    console.expect_text(f"{RECORDS} records will be consumed again, 0 will be skipped.")
    console.dialog().get_by_role("cell", name=f"−{RECORDS}").wait_for()
    console.confirm("reset-offsets")
    console.page.locator(".facts", has_text=f"{RECORDS} records").wait_for()


def test_reset_to_time_uses_the_chosen_time_zone(started: Any, node: AuthorizingNode) -> None:
    with open_tab(started, node, "root") as tab:
        browser = tab.page.context.new_cdp_session(tab.page)
        browser.send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
        for is_utc, zone, hour in ((False, "UTC+09:00", 1), (True, "UTC", 10)):
            tab.page.evaluate("async (utc) => (await import('/ui/ui/format.js')).zone.set(utc)", is_utc)
            tab.open(f"/groups/{GROUP}")
            tab.press("reset-offsets?")
            tab.fill(kind="time")
            time_field = tab.dialog().get_by_label(f"Time ({zone})")
            assert re.search(r"T\d\d:00(:00)?$", time_field.input_value())
            time_field.fill("2026-01-01T10:00:00")
            with tab.page.expect_request("**/offsets") as sent:
                tab.press("show-plan")
            expected = datetime(2026, 1, 1, hour, tzinfo=UTC)
            assert sent.value.post_data_json["to"] == f"@{int(expected.timestamp() * 1000)}"
            tab.expect_text(f"Reset to 2026-01-01 10:00:00 {zone}.")
            tab.cancel()


def test_topics_are_sorted_by_size_over_all_pages(console: ConsoleTab, node: AuthorizingNode) -> None:
    rows = console.page.locator("main tbody tr")
    console.open("/topics")
    console.page.get_by_role("button", name="Records").click()
    console.page.locator("th[aria-sort=descending]").wait_for()
    console.page.locator(f"tbody tr:first-child[data-key={TOPIC}]").wait_for()
    console.check_page("topics-sorted")
    console.page.get_by_role("button", name="Partitions").click()
    console.page.wait_for_url("**sort=-Partitions")
    rows.first.wait_for()


def test_selected_topics_are_configured_and_deleted(console: ConsoleTab, node: AuthorizingNode) -> None:
    root = log_in_as(node, "root")
    for number in range(3):
        assert root.post("/topics", {"name": f"bulk-{number}", "partitions": 1}).status == 200
    page = console.page
    console.open("/topics?search=bulk-")
    page.get_by_label("Select bulk-0").check()
    console.expect_text("1 topic selected")
    console.press("clear-selection")
    page.get_by_text("1 topic selected").wait_for(state="detached")
    page.get_by_label("Select bulk-0").check()
    console.press("select-all")
    console.expect_text("3 topics selected")
    page.get_by_label("Select bulk-1").uncheck()
    console.check_page("topics-selected")
    console.press("set-config-of-topics?")
    console.fill(name="retention.ms", value="259200000")
    console.submit_with_plan("set-config-of-topics", "bulk-2: set retention.ms = 259200000")
    for name, expected in (("bulk-0", "topic"), ("bulk-1", "default"), ("bulk-2", "topic")):
        configs = root.get(f"/topics/{name}/configs").json["items"]
        assert [each["source"] for each in configs if each["name"] == "retention.ms"] == [expected]
    console.press("delete-topics?")
    console.dialog().get_by_role("listitem").get_by_text("bulk-2").wait_for()
    assert console.dialog().locator('[data-action="delete-topics"]').is_disabled()
    console.confirm("delete-topics", typed="delete 2 topics")
    page.locator("tr[data-key=bulk-0]").wait_for(state="detached")
    assert [each["name"] for each in root.get("/topics?search=bulk-").json["items"]] == ["bulk-1"]
    page.get_by_label("Select bulk-1").check()
    assert root.send("DELETE", "/topics/bulk-1").status == 200
    console.press("delete-topics?")
    console.dialog().get_by_role("textbox").fill("delete 1 topic")
    console.dialog().locator('[data-action="delete-topics"]').click()
    console.dialog().get_by_text("0 of 1 deleted. bulk-1:").wait_for()
    console.cancel()


def test_topic_is_cloned_with_its_configs(console: ConsoleTab, node: AuthorizingNode) -> None:
    root = log_in_as(node, "root")
    body = {"name": "original", "partitions": 3, "configs": {"retention.ms": "86400000"}}
    assert root.post("/topics", body).status == 200
    console.open("/topics/original")
    console.press("clone-topic?")
    console.fill(name="copy")
    console.submit_with_plan("create-topic", "create topic copy with 3 partitions and replication factor 1")
    console.page.get_by_role("heading", name="copy").wait_for()
    configs = root.get("/topics/copy/configs").json["items"]
    assert [(each["name"], each["value"]) for each in configs if each["source"] == "topic"] == [
        ("retention.ms", "86400000")
    ]


def test_selected_groups_are_deleted(console: ConsoleTab, node: AuthorizingNode) -> None:
    root = log_in_as(node, "root")
    assert root.post("/groups/bulk-group/offsets", {"topics": [TOPIC], "to": "start"}).status == 200
    console.open("/groups?search=bulk-")
    console.page.get_by_label("Select bulk-group").check()
    console.press("delete-groups?")
    console.confirm("delete-groups", typed="delete 1 group")
    console.page.locator("tr[data-key=bulk-group]").wait_for(state="detached")
    assert root.get("/groups/bulk-group").status == 404


def test_config_editor_knows_units_choices_and_defaults(console: ConsoleTab, node: AuthorizingNode) -> None:
    root = log_in_as(node, "root")
    page, dialog = console.page, console.dialog()

    def change(name: str, shown: str, **fields: str) -> None:
        console.press("change-config?", row=name)
        dialog.get_by_text(shown).wait_for()
        console.fill(**fields)

    def stored(name: str) -> str:
        configs = root.get(f"/topics/{TOPIC}/configs").json["items"]
        return str(next(each["value"] for each in configs if each["name"] == name))

    console.open(f"/topics/{TOPIC}?tab=configs")
    page.locator("tr[data-key='retention.ms']", has_text="7 d").wait_for()
    change("retention.ms", "Default: 604800000 (7 d).", value="3", unit="d")
    console.check_page("config-editor")
    console.submit_with_plan("change-config", "set retention.ms = 259200000 (3 d)")
    console.expect_text("retention.ms was set to 3 d.")
    page.locator("tr[data-key='retention.ms']", has_text="3 d").wait_for()
    assert stored("retention.ms") == "259200000"
    console.press("change-config?", row="retention.ms")
    dialog.get_by_label("No limit").check()
    console.submit_with_plan("change-config", "set retention.ms = -1")
    page.locator("tr[data-key='retention.ms']", has_text="no limit").wait_for()
    change("message.timestamp.type", "Default: CreateTime.", value="LogAppendTime")
    console.submit_with_plan("change-config", "LogAppendTime")
    console.press("change-config?", row="cleanup.policy")
    dialog.get_by_label("compact").check()
    console.submit_with_plan("change-config", "set cleanup.policy = delete,compact")
    assert stored("cleanup.policy") == "delete,compact"
    change("segment.bytes", "Allowed: at least 1048576", value="2", unit="MiB")
    console.submit_with_plan("change-config", "set segment.bytes = 2097152")


def test_config_search_lists_names_that_start_with_the_text_first(console: ConsoleTab) -> None:
    console.open(f"/topics/{TOPIC}?tab=configs&search=retention")
    console.page.locator("tr[data-key='retention.ms']").wait_for()
    names = console.page.locator("tbody tr").evaluate_all("rows => rows.map(row => row.dataset.key)")
    assert names[:2] == ["retention.bytes", "retention.ms"]
    assert "delete.retention.ms" in names[2:]


def test_node_page_shows_changed_configs_until_all_are_selected(console: ConsoleTab) -> None:
    console.open("/nodes/1")
    only = console.page.get_by_label("Only changed configs")
    only.wait_for()
    console.expect_text("No changed configs found.")
    assert only.is_checked()
    only.uncheck()
    console.page.locator("tr[data-key='num.partitions']").wait_for()


def test_node_list_shows_problems_and_does_not_break_names(console: ConsoleTab) -> None:
    problems = [
        {"kind": "full-disk", "severity": "critical", "console": "/nodes/1"},
        {"kind": "drained-node", "severity": "warning", "console": "/nodes/1"},
    ]
    console.open("/nodes")
    name = console.page.get_by_role("table", name="Nodes").get_by_role("link", name="Node 1")
    assert name.bounding_box()["height"] < 30, "one line"
    console.page.evaluate(
        """async (problems) => {
            const { live } = await import("/ui/live.js");
            const fake = { ...live.last, cluster: { health: { problems } } };
            Object.defineProperty(live, "last", { get: () => fake, set: () => {} });
        }""",
        problems,
    )
    console.page.locator("tr[data-key='1'] .badge-error", has_text="full disk").wait_for()
    assert not console.page.get_by_text("drained node").count(), "the status shows it"
    console.page.reload()


def test_problem_does_not_change_the_verdict_on_the_metadata(console: ConsoleTab) -> None:
    verdict_class = """async () => {
        const { drawVerdict } = await import("/ui/pages/raft.js");
        const element = document.createElement("div");
        const cluster = { agrees: true, verdict: "1 of 1 agree", nodes: [{ id: 1 }], health: { status: "critical" } };
        drawVerdict(element, cluster, { isBrief: true });
        return [element.className, element.querySelector(".verdict-more").textContent];
    }"""
    assert console.page.evaluate(verdict_class) == [
        "verdict-box verdict-ok",
        "about the metadata of the cluster · 1 of 1 node reachable",
    ]


def test_overview_without_describe_on_the_cluster_is_labeled_hidden(started: Any, node: AuthorizingNode) -> None:
    with open_tab(started, node, "alice") as tab:
        tab.expect_text("Hidden: you need the permission Describe on the cluster.")
        assert not tab.page.locator(".verdict-frame .notice-error").count()


def test_json_path_among_texts_is_offered_as_a_condition(console: ConsoleTab, node: AuthorizingNode) -> None:
    root = log_in_as(node, "root")
    assert root.post("/topics", {"name": "conditions", "partitions": 1}).status == 200
    for number in (6, 7):
        message = {"value": json.dumps({"customer": {"id": number}})}
        assert root.post("/topics/conditions/messages", message).status == 201
    console.open("/topics/conditions?tab=messages")
    console.page.get_by_label("Contains").fill("$.customer.id = 7")
    console.press("show-messages")
    console.expect_text("No messages match")
    console.press("use-as-condition")
    console.expect_text("1 match in 2 messages")
    assert console.page.get_by_label("Condition on JSON fields").input_value() == "$.customer.id = 7"


def test_table_is_found_by_the_name_of_its_topic(console: ConsoleTab) -> None:
    console.open("/tables")
    console.page.get_by_label("Search pipelines and topics").fill("ORD")
    console.page.locator(f"tr[data-key={PIPELINE}]").get_by_role("link", name=TOPIC).click()
    console.page.get_by_role("heading", name="Progress by partition").wait_for()
    assert f"topic={TOPIC}" in console.page.url
    console.open("/tables?search=payroll")
    console.expect_text("No pipeline or topic name contains “payroll”.")


def test_statistics_are_computed_on_request(console: ConsoleTab, node: AuthorizingNode) -> None:
    root = log_in_as(node, "root")
    assert root.post("/topics", {"name": "measured", "partitions": 2}).status == 200
    for message in ({"key": "a", "value": "x" * 1000}, {"key": "b", "value": None}, {"key": None, "value": ""}):
        assert root.post("/topics/measured/messages", {"partition": 1, **message}).status == 201
    page = console.page
    console.open("/topics/measured")
    page.get_by_role("link", name="Statistics").click()
    console.press("compute-statistics")
    console.expect_text("All selected records were read.")
    row = page.locator("tr[data-key='1']")
    row.get_by_text("1 (33 %)").first.wait_for()
    row.get_by_text("0 B · 500 B · 1,000 B").or_(row.get_by_text("0 B · 500 B · 1000 B")).wait_for()
    console.check_page("topic-statistics")
    page.get_by_label("Partition", exact=True).fill("0")
    console.press("compute-statistics")
    row.wait_for(state="detached")
    page.locator("tr[data-key='0']").wait_for()
    page.route("**/statistics?**", lambda route: None)
    console.press("compute-statistics")
    console.press("cancel-statistics")
    console.expect_text("Cancelled.")
    page.unroute("**/statistics?**")


def test_buttons_of_this_module_were_pressed(request: pytest.FixtureRequest, pressed: set[str]) -> None:
    run = {item.name for item in request.session.items if item.path == request.path}
    if not {name for name in globals() if name.startswith("test_")} <= run:
        pytest.skip("not all of this file was run")
    assert pressed >= PRESSED_ON_ONE_NODE
