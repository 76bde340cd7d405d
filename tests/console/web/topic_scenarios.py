"""Browser scenarios for topics, their configs and their messages."""

from __future__ import annotations

from typing import Any

from tests.console.web import message_scenarios
from tests.console.web.browser import ConsoleTab
from tests.console.web.cluster_inspector import ClusterInspector

TOPIC = "from-the.browser"


def topics(console: ConsoleTab, inspector: ClusterInspector) -> None:
    page = console.page
    console.open("/topics")
    console.check_page("topics")
    internal = page.locator("tr .badge", has_text="internal").first
    page.get_by_label("Include internal topics").check()
    internal.wait_for()
    page.get_by_label("Include internal topics").uncheck()
    internal.wait_for(state="detached")
    page.keyboard.press("/")
    page.keyboard.type("paym")
    page.get_by_role("link", name="orders").wait_for(state="detached")
    assert "search=paym" in page.url
    _create(console, inspector)
    console.press("add-partitions?")
    console.confirm("add-partitions")
    inspector.wait_for("partitions", lambda: len(inspector.partitions(TOPIC)), 3)
    page.get_by_text("3 of 3").nth(2).wait_for()
    _configs(console, inspector)
    page.get_by_role("link", name="Partitions").click()
    _delete_records(console, inspector)
    console.press("delete-topic?")
    assert console.dialog().locator('[data-action="delete-topic"]').is_disabled()
    console.confirm("delete-topic", typed=TOPIC)
    page.get_by_role("heading", name="Topics").wait_for()
    inspector.wait_for("partitions", lambda: inspector.partitions(TOPIC), [])


def _create(console: ConsoleTab, inspector: ClusterInspector) -> None:
    dialog = console.dialog()
    console.press("create-topic?")
    console.fill(name=TOPIC, partitions="2")
    for _ in range(2):
        console.press("add-pair")
    console.press("remove-pair")
    dialog.get_by_label("Configs: Name").fill("retention.ms")
    dialog.get_by_label("Configs: Value").fill("7200000")
    console.check_page("create")
    console.press("show-plan")
    dialog.locator(".plan", has_text=TOPIC).wait_for()
    console.press("back-to-form")
    console.fill(partitions="2")
    console.submit_with_plan("create-topic", TOPIC)
    console.page.get_by_role("heading", name=TOPIC).wait_for()
    console.page.get_by_text("3 of 3").nth(1).wait_for()
    inspector.wait_for("partitions", lambda: len(inspector.partitions(TOPIC)), 2)
    inspector.wait_for("retention.ms", lambda: inspector.config("retention.ms", topic=TOPIC), "7200000")


def _configs(console: ConsoleTab, inspector: ClusterInspector) -> None:
    page = console.page
    page.get_by_role("link", name="Configs").click()
    console.settle()
    console.check_page("configs")
    console.press("change-config?", row="retention.ms")
    assert console.dialog().locator("[name=unit]").input_value() == "h"
    console.fill(value="60", unit="min")
    console.submit_with_plan("change-config", "retention.ms")
    inspector.wait_for("retention.ms", lambda: inspector.config("retention.ms", topic=TOPIC), "3600000")
    console.press("set-config?")
    console.fill(name="max.message.bytes", value="65536")
    console.submit_with_plan("set-config", "max.message.bytes")
    inspector.wait_for("max.message.bytes", lambda: inspector.config("max.message.bytes", topic=TOPIC), "65536")
    page.get_by_label("Only changed configs").check()
    page.locator("tr[data-key='cleanup.policy']").wait_for(state="detached")
    page.locator("tr[data-key='max.message.bytes']").wait_for()
    console.press("reset-config?", row="retention.ms")
    console.confirm("reset-config", plan="retention.ms")
    page.locator("tr[data-key='retention.ms']").wait_for(state="detached")
    inspector.wait_for("retention.ms", lambda: inspector.config("retention.ms", topic=TOPIC), "604800000")


def _delete_records(console: ConsoleTab, inspector: ClusterInspector) -> None:
    inspector.cluster.produce(TOPIC, 12)
    end_offsets = [inspector.offsets(TOPIC, partition)[1] for partition in range(3)]
    partition = end_offsets.index(max(end_offsets))
    row = console.page.locator(f"tr[data-key='{partition}']")
    row.get_by_role("cell", name=str(end_offsets[partition]), exact=True).first.wait_for()
    row.locator('[data-action="delete-records?"]').click()
    console.fill(offset="2", typed=TOPIC.replace("-", "_"))
    console.press("delete-records")
    assert console.dialog().locator("input:invalid").count() == 1, "a wrong name must be rejected"
    console.fill(typed=TOPIC)
    console.confirm("delete-records")
    console.expect_text(f"Partition {partition} now starts at offset 2.")
    assert inspector.offsets(TOPIC, partition) == (2, end_offsets[partition])


def messages(console: ConsoleTab, inspector: ClusterInspector) -> None:
    page = console.page
    console.open("/topics/orders")
    page.get_by_text("3 of 3").first.wait_for()
    console.check_page("topic", "")
    _produce(console, inspector)
    page.get_by_role("link", name="Messages").click()
    page.locator("tr.message").first.wait_for()
    page.locator("tr.message", has_text="wonder").locator('[data-action="open-message"]').click()
    assert "9007199254740993" in page.locator(".detail pre").last.inner_text()  # not rounded to a float
    console.press("copy-value")
    console.expect_text("Copy value: copied.")
    assert console.clipboard_text() == '{\n  "wonder": 9007199254740993\n}'
    page.locator("tr.message", has_text="euros").first.locator('[data-action="open-message"]').click()
    console.check_page("messages", "", "-phone")
    for view, shown in (("Python", "TopicPartition("), ("CLI", "chronik consume orders"), ("SQL", "--client-config")):
        page.get_by_role("button", name=view, exact=True).click()
        assert shown in page.locator(".detail pre").last.inner_text()
    console.press("copy-as")
    console.expect_text("Copy as SQL: copied.")
    assert "_offset =" in console.clipboard_text()
    _browse(console, inspector)
    message_scenarios.older_and_newer(console)
    message_scenarios.filters(console)
    message_scenarios.values(console, inspector)
    message_scenarios.saved_queries_and_zones(console)
    console.open("/topics/orders?tab=messages")
    _tail(console, inspector)
    page.get_by_role("link", name="Partitions").click()
    page.get_by_role("button", name="End offset").click()
    page.locator("th[aria-sort='descending']").wait_for()
    console.press("sort")
    console.press("move-partition?")
    console.fill(replicas="2, 3, 1")
    partition = int(console.dialog().get_by_role("heading").inner_text().split()[2])
    console.submit_with_plan("move-partition", "2, 3, 1")
    inspector.wait_for("replicas", lambda: inspector.partitions("orders")[partition], [2, 3, 1])
    console.open("/topics/clicks.web")
    console.press("reassign-topic?")
    console.dialog().get_by_label("node 3").uncheck()
    console.fill(replication_factor="2")
    console.press("show-plan")
    console.expect_text("6 partitions change")
    console.check_page("reassign-topic")
    console.confirm("reassign-topic")
    inspector.wait_for(
        "replicas", lambda: {tuple(sorted(each)) for each in inspector.partitions("clicks.web")}, {(1, 2)}
    )


def _produce(console: ConsoleTab, inspector: ClusterInspector) -> None:
    dialog = console.dialog()
    console.press("write-message?")
    console.fill(key="grace", value='{"wonder": 9007199254740993}', value_format="json", partition="1")
    console.press("add-pair")
    dialog.get_by_label("Headers: Name").fill("source")
    dialog.get_by_label("Headers: Value").fill("browser")
    console.check_page("produce")
    _, end = inspector.offsets("orders", 1)
    console.confirm("write-message")
    console.expect_text(f"Produced to partition 1 at offset {end:,}.")
    record = inspector.record("orders", 1, end)
    assert (record.key(), record.value()) == (b"grace", b'{"wonder": 9007199254740993}')
    assert record.headers() == [("source", b"browser")]
    console.press("write-message?")
    console.fill(key="Z3JhY2U=", key_format="base64", partition="2", timestamp="2020-02-02T02:02")
    dialog.get_by_label("Tombstone").check()
    _, end = inspector.offsets("orders", 2)
    console.confirm("write-message")
    record = inspector.record("orders", 2, end)
    assert (record.key(), record.value()) == (b"grace", None)
    assert record.timestamp()[1] < 1_600_000_000_000


def _browse(console: ConsoleTab, inspector: ClusterInspector) -> None:
    page = console.page
    ends = [inspector.offsets("orders", partition)[1] for partition in range(3)]
    most = ends.index(max(ends))
    form = page.get_by_role("form", name="Message filter")
    form.get_by_label("Partition").select_option(str(most))
    form.get_by_label("Start at").select_option("offset")
    form.get_by_label("Offset").fill("30")
    form.get_by_label("Limit").select_option("20")
    console.press("show-messages")
    for offset, then in ((30, "newer"), (50, "older"), (30, "newest")):
        page.locator(f"tr.message:first-child[data-place='{most}:{offset}']").wait_for()
        console.press(then)
    page.locator(f"tr.message:first-child[data-place='{most}:{ends[most] - 1}']").wait_for()


def _tail(console: ConsoleTab, inspector: ClusterInspector) -> None:
    page = console.page
    rows = page.locator("tr.message")
    held: list[Any] = []
    page.route("**/tail*", lambda route: held.append(route))
    with page.expect_request("**/tail*"):
        page.get_by_role("link", name="Live tail").click()
    console.expect_text("Connecting…")  # messages produced now would not be shown
    held[0].continue_()
    page.unroute("**/tail*")
    console.expect_text("Live: ")
    inspector.cluster.produce("orders", 3, 9000)
    rows.nth(2).wait_for()
    console.press("pause-tail")
    console.expect_text("Paused.")
    console.check_page("tail")
    inspector.cluster.produce("orders", 3, 9100)
    console.expect_text("3 messages arrived since.")
    assert rows.count() == 3
    console.press("pause-tail")
    rows.nth(5).wait_for()
    console.press("clear-tail")
    rows.first.wait_for(state="detached")
    page.get_by_role("form", name="Message filter").get_by_label("Partition").select_option("0")
    console.press("apply-tail")
    page.wait_for_url("**partition=0**")
    console.expect_text("Live: ")
