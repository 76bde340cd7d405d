"""Browser scenarios for the schema registry and for typed messages."""

from __future__ import annotations

import json
from typing import Any

from chronik.formats.codec import ValueFormat, WriterSchema
from chronik.formats.encoding import build_prefix, create_encoder
from chronik.formats.registry_client import RegistryClient
from tests.console.web.browser import ConsoleTab
from tests.console.web.cluster_inspector import ClusterInspector

TOPIC = "typed-orders"
SUBJECT = f"{TOPIC}-value"
ITEM_SUBJECT = "shop.Item"
LARGE_NUMBER = 9007199254740993
"""A number that JavaScript cannot represent."""

ITEM = {
    "type": "record",
    "name": "Item",
    "namespace": "shop",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
}


def build_order(*more: dict[str, Any]) -> dict[str, Any]:
    fields = [
        {"name": "number", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "items", "type": {"type": "array", "items": "shop.Item"}},
        *more,
    ]
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}


FIRST = build_order()
SECOND = build_order({"name": "paid", "type": "boolean", "default": False})
INCOMPATIBLE = build_order({"name": "paid", "type": "boolean"})


def schemas(console: ConsoleTab, inspector: ClusterInspector) -> None:
    console.open("/overview")
    console.page.keyboard.press("g")
    console.page.keyboard.press("c")
    console.expect_text("There are no schemas yet.")
    console.check_page("schemas-empty")
    with inspector.registry() as registry:
        _register(console, registry)
        _versions(console, registry)
        _compatibility(console, registry)
        console.open("/schemas")
        console.page.locator(f'tr[data-key="{SUBJECT}"]', has_text="Avro").wait_for()
        console.check_page("schemas")
        console.page.keyboard.press("/")
        console.page.keyboard.type("shop.")
        console.page.locator(f'tr[data-key="{SUBJECT}"]').wait_for(state="detached")
        console.page.get_by_role("link", name=ITEM_SUBJECT, exact=True).wait_for()


def _register(console: ConsoleTab, registry: RegistryClient) -> None:
    page, dialog = console.page, console.dialog()
    console.press("register-schema?")
    console.fill(subject=ITEM_SUBJECT, schema=json.dumps(ITEM))
    console.check_page("register-schema")
    console.submit_with_plan("register-schema", f"Create the subject {ITEM_SUBJECT}.")
    page.get_by_role("link", name=ITEM_SUBJECT, exact=True).wait_for()
    assert json.loads(registry.fetch_latest(ITEM_SUBJECT).schema.text) == ITEM
    console.press("register-schema?")
    console.fill(subject=SUBJECT, type="AVRO", schema=json.dumps(FIRST))
    console.press("add-pair")
    dialog.get_by_label("References: Name in the schema").fill("shop.Item")
    dialog.get_by_label("References: Subject and version").fill(f"{ITEM_SUBJECT} 1")
    console.submit_with_plan("register-schema", f"Create the subject {SUBJECT}.")
    assert registry.fetch_latest(SUBJECT).version == 1


def _versions(console: ConsoleTab, registry: RegistryClient) -> None:
    page, dialog = console.page, console.dialog()
    page.get_by_role("link", name=SUBJECT).click()
    page.get_by_role("heading", name=SUBJECT).wait_for()
    console.press("register-version?")
    console.fill(schema=json.dumps(INCOMPATIBLE))
    console.press("show-plan")
    dialog.locator(".notice-error", has_text="paid").wait_for()
    console.check_page("incompatible-schema")
    console.fill(schema=json.dumps(SECOND))
    console.submit_with_plan("register-version", "The schema is compatible with the versions")
    page.get_by_role("heading", name="Version 2").wait_for()
    assert registry.fetch_latest(SUBJECT).version == 2
    page.get_by_label("Compare with").select_option("1")
    console.expect_text("From version 1 to version 2: ")
    assert page.locator(".diff-added", has_text='"paid"').count() == 1
    console.check_page("schema", "")
    page.get_by_label("Show").select_option("1")
    page.get_by_role("heading", name="Version 1").wait_for()
    page.locator(".diff").wait_for(state="detached")
    console.press("copy-schema")
    console.expect_text("Copy schema: copied.")
    assert [each["name"] for each in json.loads(console.clipboard_text())["fields"]] == ["number", "customer", "items"]
    page.get_by_role("region", name="References of version 1").get_by_role("link", name=ITEM_SUBJECT).click()
    users = page.get_by_role("region", name="Versions that refer to this one")
    users.get_by_role("link", name=SUBJECT).nth(1).wait_for()
    users.get_by_role("link", name=SUBJECT).first.click()
    page.get_by_role("heading", name=SUBJECT).wait_for()


def _compatibility(console: ConsoleTab, registry: RegistryClient) -> None:
    page = console.page
    console.press("set-compatibility?")
    console.fill(compatibility="FULL_TRANSITIVE")
    console.confirm("set-compatibility")
    page.locator(".badge", has_text="FULL_TRANSITIVE").wait_for()
    console.press("set-compatibility?")
    assert console.dialog().locator('[name="compatibility"]').input_value() == "FULL_TRANSITIVE"
    console.fill(compatibility="")
    console.confirm("set-compatibility")
    page.get_by_text("BACKWARD (default)").wait_for()
    console.open("/schemas")
    console.press("set-compatibility?")
    console.fill(compatibility="FULL")
    console.confirm("set-compatibility")
    page.locator(".table-note", has_text="FULL").wait_for()
    console.open(f"/schemas/{SUBJECT}")
    page.get_by_text("FULL (default)").wait_for()


def typed_messages(console: ConsoleTab, inspector: ClusterInspector) -> None:
    page = console.page
    with inspector.registry() as registry:
        latest = registry.fetch_latest(SUBJECT)
    text = WriterSchema(ValueFormat.AVRO, json.dumps(SECOND), latest.schema.references)
    order = {"number": LARGE_NUMBER, "customer": "ada", "items": [{"sku": "S-017", "count": 2}], "paid": True}
    value = build_prefix(latest.id) + create_encoder(text).encode_value(order)
    inspector.cluster.produce_bytes(TOPIC, value, value[:-1], build_prefix(latest.id + 1000))
    console.open(f"/topics/{TOPIC}?tab=messages")
    row = page.locator("tr.message", has_text="S-017")
    row.wait_for()
    assert page.locator("tr.message", has_text="not decoded").count() == 2
    row.locator('[data-action="open-message"]').click()
    detail = page.locator(".detail")
    detail.get_by_text("Avro", exact=True).wait_for()
    detail.get_by_text(f"schema id {latest.id}").wait_for()
    assert f'"number": {LARGE_NUMBER}' in detail.locator("pre").last.inner_text()
    console.check_page("typed-message", "")
    page.locator("tr.message", has_text="not decoded").last.locator('[data-action="open-message"]').click()
    detail.get_by_text("The value was not decoded: ").wait_for()
    console.check_page("undecoded-message")
    console.open(f"/topics/{TOPIC}?tab=messages&text={LARGE_NUMBER}")
    console.expect_text("1 match in")
    assert page.locator("tr.message").count() == 1
    page.locator("tr.message").locator('[data-action="open-message"]').click()
    detail.get_by_role("link", name=f"{SUBJECT}, version 2").click()
    page.get_by_role("heading", name="Version 2").wait_for()


def deletion(console: ConsoleTab, inspector: ClusterInspector) -> None:
    page, dialog = console.page, console.dialog()
    console.open(f"/schemas/{SUBJECT}?version=1")
    console.press("delete-version?")
    console.confirm("delete-version", typed=SUBJECT)
    page.get_by_label("Show").select_option(label="version 1 (deleted)")
    page.get_by_role("heading", name="Version 1").wait_for()
    console.check_page("deleted-version")
    console.press("delete-version?")
    dialog.get_by_role("heading", name="Delete version 1 permanently").wait_for()
    console.confirm("delete-version", typed=SUBJECT)
    page.get_by_role("option", name="version 1 (deleted)").wait_for(state="detached")
    console.press("delete-subject?")
    assert dialog.locator('[data-action="delete-subject"]').is_disabled()
    console.confirm("delete-subject", typed=SUBJECT)
    page.get_by_role("heading", name="Schemas").wait_for()
    row = page.locator(f'tr[data-key="{SUBJECT}"]')
    row.wait_for(state="detached")
    page.get_by_label("Include deleted subjects").check()
    row.get_by_text("deleted", exact=True).wait_for()
    page.get_by_role("link", name=SUBJECT).click()
    console.press("delete-subject?")
    dialog.get_by_role("heading", name=f"Delete {SUBJECT} permanently").wait_for()
    console.confirm("delete-subject", typed=SUBJECT)
    page.get_by_role("heading", name="Schemas").wait_for()
    console.open("/schemas?deleted=yes")
    page.get_by_role("link", name=ITEM_SUBJECT, exact=True).wait_for()
    assert row.count() == 0
