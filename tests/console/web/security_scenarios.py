"""Browser scenarios for users, ACLs and quotas."""

from __future__ import annotations

from chronik.client.security import AclBinding, AclFilter, add_acls, remove_acls
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.security.acls import AclPermission, PatternType
from tests.console.web.browser import ConsoleTab
from tests.console.web.cluster_inspector import ClusterInspector

EVE = "User:eve"
MANY = "User:many"
PAGE = 100
"""ACLs on one page."""


def users(console: ConsoleTab, inspector: ClusterInspector) -> None:
    row = console.page.locator("tr[data-key=eve]")
    console.open("/security")
    console.check_page("users")
    console.press("add-user?")
    console.fill(name="eve", password="a long password")
    console.confirm("add-user")
    row.wait_for()
    inspector.wait_for("mechanisms", lambda: inspector.mechanisms("eve"), ["SCRAM-SHA-256", "SCRAM-SHA-512"])
    assert inspector.can_log_in("eve", "a long password")
    console.press("change-password?", row="eve")
    console.fill(password="a longer password")
    console.confirm("change-password")
    console.expect_text("The password of eve was changed.")
    inspector.wait_for("login with the new password", lambda: inspector.can_log_in("eve", "a longer password"), True)
    assert not inspector.can_log_in("eve", "a long password")
    console.press("delete-user?", row="eve")
    console.confirm("delete-user", typed="eve")
    row.wait_for(state="detached")
    inspector.wait_for("mechanisms", lambda: inspector.mechanisms("eve"), [])


def acls(console: ConsoleTab, inspector: ClusterInspector) -> None:
    row = console.page.locator("tr", has_text=EVE)
    console.open("/security?tab=acls")
    console.press("create-acl?")
    console.fill(principal=EVE, name="orders", operation="write", pattern="prefixed")
    console.confirm("create-acl")
    row.wait_for()
    console.check_page("acls", "")
    expected = AclBinding(
        AclResourceType.TOPIC, "orders", PatternType.PREFIXED, EVE, "*", AclOperation.WRITE, AclPermission.ALLOW
    )
    inspector.wait_for("ACLs", lambda: inspector.acls(EVE), [expected])
    row.locator('[data-action="delete-acl?"]').click()
    console.confirm("delete-acl")
    row.wait_for(state="detached")
    inspector.wait_for("ACLs", lambda: inspector.acls(EVE), [])
    _create_acls_of_consumer(console, inspector)
    _import_exported_acls(console, inspector)
    _paginate_acls(console, inspector)


def _create_acls_of_consumer(console: ConsoleTab, inspector: ClusterInspector) -> None:
    console.press("create-acl?")
    console.fill(role="consumer", principal=EVE, topics="orders\npayments", groups="billing")
    console.press("show-plan")
    plan = console.dialog().get_by_role("table", name="ACLs of the plan")
    plan.get_by_role("row", name="billing").get_by_text("new").wait_for()
    assert plan.locator("tbody tr").count() == 5
    assert inspector.acls(EVE) == []
    console.check_page("acl-plan")
    console.confirm("create-acl")
    console.expect_text("5 ACLs created.")
    inspector.wait_for("number of ACLs", lambda: len(inspector.acls(EVE)), 5)


def _import_exported_acls(console: ConsoleTab, inspector: ClusterInspector) -> None:
    console.open(f"/security?tab=acls&search={EVE}")
    with console.page.expect_download() as started:
        console.press("export-acls")
    assert started.value.suggested_filename == "acls.csv"
    exported = started.value.path().read_bytes()
    before = inspector.acls(EVE)
    with inspector.cluster.client() as client:
        remove_acls(client, [AclFilter(AclResourceType.TOPIC, principal=EVE)])
    file = console.dialog().locator("[name=file]")
    console.press("import-acls?")
    file.set_input_files({"name": "acls.csv", "mimeType": "text/csv", "buffer": exported + b"User:eve\r\n"})
    console.press("show-plan")
    console.expect_text("1 line of the file cannot be imported. Nothing was created.")
    console.dialog().get_by_role("row", name="7 expected 7 cells").wait_for()
    file.set_input_files({"name": "acls.csv", "mimeType": "text/csv", "buffer": exported})
    console.press("show-plan")
    console.expect_text("4 ACLs will be created. 1 ACL already exists.")
    console.confirm("import-acls")
    inspector.wait_for("ACLs", lambda: sorted(inspector.acls(EVE)), sorted(before))
    with inspector.cluster.client() as client:
        remove_acls(client, [AclFilter(principal=EVE)])


def _paginate_acls(console: ConsoleTab, inspector: ClusterInspector) -> None:
    rows = console.page.locator("tr", has_text=MANY)
    binding = (PatternType.LITERAL, MANY, "*", AclOperation.READ, AclPermission.ALLOW)
    with inspector.cluster.client() as client:
        add_acls(client, [AclBinding(AclResourceType.TOPIC, f"t{n:03}", *binding) for n in range(PAGE + 1)])
        console.open(f"/security?tab=acls&search={MANY}")
        rows.nth(PAGE - 1).wait_for()
        console.press("page-next")
        rows.nth(1).wait_for(state="detached")
        assert rows.count() == 1
        console.press("page-back")
        rows.nth(PAGE - 1).wait_for()
        remove_acls(client, [AclFilter(principal=MANY)])


def quotas(console: ConsoleTab, inspector: ClusterInspector) -> None:
    console.open("/security?tab=quotas")
    console.press("set-quota?")
    console.fill(name="eve", producer_byte_rate="1048576")
    console.confirm("set-quota")
    console.expect_text("1 MiB/s")
    console.check_page("quotas")
    inspector.wait_for("quotas", lambda: inspector.quotas("eve"), {"producer_byte_rate": 1048576.0})
    console.press("change-quota?", row="user eve")
    console.fill(producer_byte_rate="", request_percentage="50")
    console.confirm("change-quota")
    console.expect_text("50 %")
    inspector.wait_for("quotas", lambda: inspector.quotas("eve"), {"request_percentage": 50.0})
    console.press("remove-quota?", row="user eve")
    console.confirm("remove-quota")
    console.expect_text("There are no quotas.")
    inspector.wait_for("quotas", lambda: inspector.quotas("eve"), {})
