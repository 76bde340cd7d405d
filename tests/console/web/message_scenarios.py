"""Browser scenarios for the message browser: pages, filters, values, saved queries and time zones."""

from __future__ import annotations

import json
from typing import Any

from tests.console.web.browser import ConsoleTab
from tests.console.web.cluster_inspector import ClusterInspector

VALUES_TOPIC = "values"
LARGE = json.dumps(
    {"rows": [{"number": number, "text": "x" * 40} for number in range(1_500)], "last": "Grünwald"}, ensure_ascii=False
)


def older_and_newer(console: ConsoleTab) -> None:
    page = console.page
    console.open("/topics/orders?tab=messages")
    rows = page.locator("tr.message")
    rows.nth(49).wait_for()
    newest = _places(page)
    assert len({place.partition(":")[0] for place in newest}) > 1, "messages of several partitions"
    console.press("older")
    page.locator(f"tr.message[data-place='{newest[0]}']").wait_for(state="detached")
    rows.nth(49).wait_for()
    assert not set(_places(page)) & set(newest)
    console.press("newer")
    page.locator(f"tr.message[data-place='{newest[0]}']").wait_for()
    assert set(_places(page)) == set(newest)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollHeight") < 5_500
    page.set_viewport_size({"width": 1280, "height": 860})


def _places(page: Any) -> list[str]:
    return [str(row.get_attribute("data-place")) for row in page.locator("tr.message").all()]


def filters(console: ConsoleTab) -> None:
    page = console.page
    console.open("/topics/orders?tab=messages")
    form = page.get_by_role("form", name="Message filter")
    form.get_by_label("Contains").fill("s-003")
    page.get_by_text("More filters").click()
    form.get_by_label("Key").fill("ada")
    form.get_by_label("Header").fill("source=shop")
    form.get_by_label("Condition on JSON fields").fill("$.number < 100 and $.items[*].sku contains s-0")
    console.press("show-messages")
    console.expect_text("2 matches in")
    assert page.locator("tr.message").count() == 2
    console.check_page("search")
    form.get_by_label("Condition").fill("$.number ~ 7")
    console.press("show-messages")
    console.expect_text("expected =, !=")
    # Requests over this little data end too soon to be stopped, so the request is held back.
    form.get_by_label("Condition").fill("$.number = 7")
    form.get_by_label("Contains").fill("")
    form.get_by_label("Key").fill("")
    page.route("**/messages?**", lambda route: None)
    with page.expect_event("requestfailed", lambda request: "/messages?" in request.url):
        console.press("show-messages")
        console.press("stop-reading")
    console.expect_text("Stopped.")
    page.unroute("**/messages?**")
    console.press("continue-reading")
    console.expect_text("1 match in")
    assert page.locator("tr.message").count() == 1


def values(console: ConsoleTab, inspector: ClusterInspector) -> None:
    page = console.page
    inspector.cluster.produce_bytes(
        VALUES_TOPIC, b"", b" \n", b"a\0b", "evil \u202e text".encode(), b"\xff\xfe", LARGE.encode()
    )
    console.open(f"/topics/{VALUES_TOPIC}?tab=messages")
    for text in ("empty", "blank: 2 characters", "a␀b", "evil U+202E text", "bytes"):
        page.locator("tr.message td.grow", has_text=text).wait_for()
    page.locator("tr.message", has_text="rows").locator('[data-action="open-message"]').click()
    detail = page.locator(".detail")
    console.check_page("large-value")
    assert "Grünwald" not in detail.inner_text()
    console.press("load-value")
    more = detail.locator('[data-action="show-more"]:visible')
    more.wait_for()
    while "Grünwald" not in detail.locator("pre").last.inner_text():
        more.click()
    assert '\n      "number": 1499,' in detail.locator("pre").last.inner_text()
    with page.expect_download() as download:
        detail.get_by_role("link", name="Download value").click()
    assert download.value.path().read_bytes() == LARGE.encode()
    assert download.value.suggested_filename == f"{VALUES_TOPIC}-0-5-value.bin"
    page.locator("tr.message", has_text="a␀b").locator('[data-action="open-message"]').click()
    detail.get_by_role("button", name="Hex").click()
    detail.get_by_text("61 00 62").wait_for()
    console.check_page("hex")


def saved_queries_and_zones(console: ConsoleTab) -> None:
    page = console.page
    console.open("/topics/orders?tab=messages&where=%24.number%20%3D%207")
    console.expect_text("1 match in")
    page.get_by_label("Time zone").select_option("utc")
    page.get_by_role("columnheader", name="Time (UTC)").wait_for()
    console.press("save-query?")
    console.fill(name="number seven")
    console.confirm("save-query")
    console.press("copy-link")
    console.expect_text("Copy link: copied.")
    assert "where=%24.number" in console.clipboard_text()
    console.press("export?")
    console.fill(format="csv")
    console.check_page("export")
    with page.expect_download() as download:
        console.confirm("export")
    assert download.value.suggested_filename == "orders.csv"
    header, row = download.value.path().read_text(encoding="utf-8").splitlines()
    assert header.startswith("partition,offset,timestamp")
    assert '""number"":7' in row
    console.open("/overview")
    console.open("/topics/orders?tab=messages")
    page.locator("tr.message").nth(49).wait_for()
    page.get_by_label("Saved queries").select_option(label="number seven")
    console.expect_text("1 match in")
    console.press("delete-query")
    console.expect_text("The query was deleted.")
    assert page.get_by_label("Saved queries").locator("option").all_inner_texts() == ["none"]
    assert page.get_by_label("Time zone").input_value() == "utc"
