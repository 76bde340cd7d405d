"""All that can be done with topics, their configs and their messages."""

from __future__ import annotations

from typing import Any

from tests.console.web.browser import Console
from tests.console.web.seen import Seen

MADE = "from-the.browser"


def topics(console: Console, seen: Seen) -> None:
    page = console.page
    console.open("/topics")
    console.look("topics")
    internal = page.locator("tr .badge", has_text="internal").first
    page.get_by_label("Internal topics too").check()
    internal.wait_for()
    page.get_by_label("Internal topics too").uncheck()
    internal.wait_for(state="detached")
    page.keyboard.press("/")
    page.keyboard.type("paym")
    page.get_by_role("link", name="orders").wait_for(state="detached")
    assert "search=paym" in page.url
    _create(console, seen)
    console.press("add-partitions?")
    console.does("add-partitions")
    seen.until("partitions", lambda: len(seen.partitions(MADE)), 3)
    page.get_by_text("3 of 3").nth(2).wait_for()
    _configs(console, seen)
    page.get_by_role("link", name="Partitions").click()
    _delete_records(console, seen)
    console.press("delete-topic?")
    assert console.dialog().locator('[data-action="delete-topic"]').is_disabled()
    console.does("delete-topic", typed=MADE)
    page.get_by_role("heading", name="Topics").wait_for()
    seen.until("partitions", lambda: seen.partitions(MADE), [])


def _create(console: Console, seen: Seen) -> None:
    dialog = console.dialog()
    console.press("create-topic?")
    console.fill(name=MADE, partitions="2")
    for _ in range(2):
        console.press("add-pair")
    console.press("remove-pair")
    dialog.get_by_label("Configs: Name").fill("retention.ms")
    dialog.get_by_label("Configs: Value").fill("7200000")
    console.look("create")
    console.press("show-plan")
    dialog.locator(".plan", has_text=MADE).wait_for()
    console.press("back-to-form")
    console.fill(partitions="2")
    console.planned("create-topic", MADE)
    console.page.get_by_role("heading", name=MADE).wait_for()
    console.page.get_by_text("3 of 3").nth(1).wait_for()
    seen.until("partitions", lambda: len(seen.partitions(MADE)), 2)
    seen.until("its retention", lambda: seen.config("retention.ms", topic=MADE), "7200000")


def _configs(console: Console, seen: Seen) -> None:
    page = console.page
    page.get_by_role("link", name="Configs").click()
    console.settle()
    console.look("configs")
    console.press("change-config?", row="retention.ms")
    console.fill(value="3600000")
    console.planned("change-config", "retention.ms")
    seen.until("its retention", lambda: seen.config("retention.ms", topic=MADE), "3600000")
    console.press("set-config?")
    console.fill(name="max.message.bytes", value="65536")
    console.planned("set-config", "max.message.bytes")
    seen.until("its longest batch", lambda: seen.config("max.message.bytes", topic=MADE), "65536")
    page.get_by_label("Only what was changed").check()
    page.locator("tr[data-key='cleanup.policy']").wait_for(state="detached")
    page.locator("tr[data-key='max.message.bytes']").wait_for()
    console.press("reset-config?", row="retention.ms")
    console.does("reset-config", plan="retention.ms")
    page.locator("tr[data-key='retention.ms']").wait_for(state="detached")
    seen.until("its retention", lambda: seen.config("retention.ms", topic=MADE), "604800000")


def _delete_records(console: Console, seen: Seen) -> None:
    seen.cluster.produce(MADE, 12)
    written = [seen.offsets(MADE, partition)[1] for partition in range(3)]
    partition = written.index(max(written))
    row = console.page.locator(f"tr[data-key='{partition}']")
    row.get_by_role("cell", name=str(written[partition]), exact=True).first.wait_for()
    row.locator('[data-action="delete-records?"]').click()
    console.fill(offset="2", typed=MADE.replace("-", "_"))
    console.press("delete-records")
    assert console.dialog().locator("input:invalid").count() == 1, "another name was typed"
    console.fill(typed=MADE)
    console.does("delete-records")
    console.sees(f"Partition {partition} begins at 2.")
    assert seen.offsets(MADE, partition) == (2, written[partition])


def messages(console: Console, seen: Seen) -> None:
    page = console.page
    console.open("/topics/orders")
    page.get_by_text("3 of 3").first.wait_for()
    console.look("topic", "")
    _write(console, seen)
    page.get_by_role("link", name="Messages").click()
    page.locator("tr.message").first.wait_for()
    page.locator("tr.message", has_text="wonder").locator('[data-action="open-message"]').click()
    assert "9007199254740993" in page.locator(".detail pre").last.inner_text()  # digit by digit
    console.press("copy-value")
    console.sees("Copy the value: copied.")
    assert console.copied() == '{\n  "wonder": 9007199254740993\n}'
    page.locator("tr.message", has_text="euros").first.locator('[data-action="open-message"]').click()
    console.look("messages", "", "-phone")
    for view, shown in (("Python", "TopicPartition("), ("CLI", "chronik consume orders"), ("SQL", "_offset =")):
        page.get_by_role("button", name=view, exact=True).click()
        assert shown in page.locator(".detail pre").last.inner_text()
    console.press("copy-as")
    console.sees("Copy as SQL: copied.")
    assert "_offset =" in console.copied()
    _browse(console, seen)
    _search(console)
    _tail(console, seen)
    page.get_by_role("link", name="Partitions").click()
    page.get_by_role("button", name="Next offset").click()
    page.locator("th[aria-sort='descending']").wait_for()
    console.press("sort")
    console.press("move-partition?")
    console.fill(replicas="2, 3, 1")
    partition = int(console.dialog().get_by_role("heading").inner_text().split()[2])
    console.planned("move-partition", "2, 3, 1")
    seen.until("copies", lambda: seen.partitions("orders")[partition], [2, 3, 1])


def _write(console: Console, seen: Seen) -> None:
    dialog = console.dialog()
    console.press("write-message?")
    console.fill(key="grace", value='{"wonder": 9007199254740993}', value_format="json", partition="1")
    console.press("add-pair")
    dialog.get_by_label("Headers: Name").fill("source")
    dialog.get_by_label("Headers: Value").fill("browser")
    console.look("produce")
    _, end = seen.offsets("orders", 1)
    console.does("write-message")
    console.sees(f"Written to partition 1 at offset {end:,}.")
    record = seen.record("orders", 1, end)
    assert (record.key(), record.value()) == (b"grace", b'{"wonder": 9007199254740993}')
    assert record.headers() == [("source", b"browser")]
    console.press("write-message?")
    console.fill(key="Z3JhY2U=", key_format="base64", partition="2", timestamp="2020-02-02T02:02")
    dialog.get_by_label("No value").check()
    _, end = seen.offsets("orders", 2)
    console.does("write-message")
    record = seen.record("orders", 2, end)
    assert (record.key(), record.value()) == (b"grace", None)
    assert record.timestamp()[1] < 1_600_000_000_000


def _browse(console: Console, seen: Seen) -> None:
    page = console.page
    ends = [seen.offsets("orders", partition)[1] for partition in range(3)]
    most = ends.index(max(ends))
    form = page.get_by_role("form", name="What to show")
    form.get_by_label("Partition").select_option(str(most))
    form.get_by_label("Start at").select_option("offset")
    form.get_by_label("Offset").fill("30")
    form.get_by_label("At most").select_option("20")
    console.press("show-messages")
    for offset, then in ((30, "newer"), (50, "older"), (30, "newest")):
        page.locator(f"tr.message:first-child[data-place='{most}:{offset}']").wait_for()
        console.press(then)
    page.locator(f"tr.message:first-child[data-place='{most}:{ends[most] - 1}']").wait_for()


def _search(console: Console) -> None:
    page = console.page
    page.get_by_role("link", name="Search").click()
    page.get_by_label("Contains").fill("wonder")
    page.get_by_role("form", name="What to show").get_by_label("Partition").select_option("")
    console.press("search-messages")
    console.sees("All was looked at.")
    page.locator("tr.message").first.wait_for()
    assert page.locator("tr.message").count() == 1
    console.look("search")
    # There is too little here to be searched for long: one is held up on its way.
    page.route("**/search?**", lambda route: None)
    with page.expect_event("requestfailed", lambda request: "/search?" in request.url):
        console.press("search-messages")
        console.press("cancel-search")
    console.sees("Cancelled.")
    page.unroute("**/search?**")


def _tail(console: Console, seen: Seen) -> None:
    page = console.page
    rows = page.locator("tr.message")
    held: list[Any] = []
    page.route("**/tail*", lambda route: held.append(route))
    with page.expect_request("**/tail*"):
        page.get_by_role("link", name="Live tail").click()
    console.sees("Connecting…")  # what is written now would not be heard
    held[0].continue_()
    page.unroute("**/tail*")
    console.sees("Listening")
    seen.cluster.produce("orders", 3, 9000)
    rows.nth(2).wait_for()
    console.press("pause-tail")
    console.sees("Paused.")
    console.look("tail")
    seen.cluster.produce("orders", 3, 9100)
    console.sees("3 messages came since.")
    assert rows.count() == 3
    console.press("pause-tail")
    rows.nth(5).wait_for()
    console.press("clear-tail")
    rows.first.wait_for(state="detached")
    page.get_by_role("form", name="What to show").get_by_label("Partition").select_option("0")
    console.press("apply-tail")
    page.wait_for_url("**partition=0**")
    console.sees("Listening")
