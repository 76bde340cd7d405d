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
    _paginate_acls(console, inspector)


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
