"""All that can be done with users, rights and limits."""

from __future__ import annotations

from chronik.client.security.acls import AclBinding, AclFilter, add_acls, remove_acls
from chronik.protocol.permissions import Operation, ResourceType
from chronik.security.acls import PatternType, Permission
from tests.console.web.browser import Console
from tests.console.web.seen import Seen

EVE = "User:eve"
MANY = "User:many"
PAGE = 100
"""Rights on one page."""


def users(console: Console, seen: Seen) -> None:
    row = console.page.locator("tr[data-key=eve]")
    console.open("/security")
    console.look("users")
    console.press("add-user?")
    console.fill(name="eve", password="a long password")
    console.does("add-user")
    row.wait_for()
    seen.until("mechanisms", lambda: seen.mechanisms("eve"), ["SCRAM-SHA-256", "SCRAM-SHA-512"])
    assert seen.may_log_in("eve", "a long password")
    console.press("change-password?", row="eve")
    console.fill(password="a longer password")
    console.does("change-password")
    console.sees("eve has a new password.")
    seen.until("her new password", lambda: seen.may_log_in("eve", "a longer password"), True)
    assert not seen.may_log_in("eve", "a long password")
    console.press("delete-user?", row="eve")
    console.does("delete-user", typed="eve")
    row.wait_for(state="detached")
    seen.until("mechanisms", lambda: seen.mechanisms("eve"), [])


def rights(console: Console, seen: Seen) -> None:
    row = console.page.locator("tr", has_text=EVE)
    console.open("/security?tab=acls")
    console.press("give-right?")
    console.fill(principal=EVE, name="orders", operation="write", pattern="prefixed")
    console.does("give-right")
    row.wait_for()
    console.look("rights", "")
    given = AclBinding(ResourceType.TOPIC, "orders", PatternType.PREFIXED, EVE, "*", Operation.WRITE, Permission.ALLOW)
    seen.until("her rights", lambda: seen.acls(EVE), [given])
    row.locator('[data-action="take-right?"]').click()
    console.does("take-right")
    row.wait_for(state="detached")
    seen.until("her rights", lambda: seen.acls(EVE), [])
    _pages(console, seen)


def _pages(console: Console, seen: Seen) -> None:
    rows = console.page.locator("tr", has_text=MANY)
    right = (PatternType.LITERAL, MANY, "*", Operation.READ, Permission.ALLOW)
    with seen.cluster.client() as client:
        add_acls(client, [AclBinding(ResourceType.TOPIC, f"t{n:03}", *right) for n in range(PAGE + 1)])
        console.open(f"/security?tab=acls&search={MANY}")
        rows.nth(PAGE - 1).wait_for()
        console.press("page-next")
        rows.nth(1).wait_for(state="detached")
        assert rows.count() == 1
        console.press("page-back")
        rows.nth(PAGE - 1).wait_for()
        remove_acls(client, [AclFilter(principal=MANY)])


def limits(console: Console, seen: Seen) -> None:
    console.open("/security?tab=quotas")
    console.press("set-quota?")
    console.fill(name="eve", producer_byte_rate="1048576")
    console.does("set-quota")
    console.sees("1 MiB/s")
    console.look("quotas")
    seen.until("her limits", lambda: seen.quotas("eve"), {"producer_byte_rate": 1048576.0})
    console.press("change-quota?", row="user eve")
    console.fill(producer_byte_rate="", request_percentage="50")
    console.does("change-quota")
    console.sees("50 %")
    seen.until("her limits", lambda: seen.quotas("eve"), {"request_percentage": 50.0})
    console.press("remove-quota?", row="user eve")
    console.does("remove-quota")
    console.sees("Nobody is limited.")
    seen.until("her limits", lambda: seen.quotas("eve"), {})
