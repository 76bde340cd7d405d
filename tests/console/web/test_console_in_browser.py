"""The console in a browser, on a secured cluster of three nodes: every page and action, both themes, desktop and phone.

The effects are verified with Kafka clients (cluster_inspector.py), and every button must be pressed (buttons.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.web import (
    group_scenarios,
    node_scenarios,
    schema_scenarios,
    security_scenarios,
    shell_scenarios,
    topic_scenarios,
)
from tests.console.web.browser import WAIT_MS, ConsoleTab, public_key_pin, require_chromium, start_browser
from tests.console.web.buttons import PRESSED_ON_ONE_NODE, action_names
from tests.console.web.cluster_inspector import ClusterInspector
from tests.console.web.secured_cluster import ADA, ADMIN, PIPELINE, TLS_NODE, SecuredCluster

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    require_chromium()
    secured = SecuredCluster(tmp_path_factory.mktemp("cluster"))
    with secured:
        secured.create_test_data()
        yield secured


@pytest.fixture(scope="module")
def started(cluster: SecuredCluster) -> Iterator[Any]:
    with start_browser(public_key_pin(cluster.keystore)) as running:
        yield running


@pytest.fixture(scope="module")
def pressed() -> set[str]:
    return set()


@pytest.fixture(scope="module")
def inspector(cluster: SecuredCluster) -> Iterator[ClusterInspector]:
    created = ClusterInspector(cluster)
    yield created
    created.close()


@pytest.fixture(scope="module")
def tab(started: Any, cluster: SecuredCluster, pressed: set[str]) -> Iterator[ConsoleTab]:
    opened = ConsoleTab(started, cluster.console_url(1), pressed)
    shell_scenarios.log_in(opened, cluster)
    yield opened
    opened.close()


@pytest.fixture
def console(tab: ConsoleTab) -> Iterator[ConsoleTab]:
    """A tab in which a super user is logged in."""
    yield tab
    assert not tab.errors


@pytest.fixture
def new_tab(started: Any, cluster: SecuredCluster, pressed: set[str]) -> Iterator[ConsoleTab]:
    """A tab without a login, on the node whose console uses TLS."""
    opened = ConsoleTab(started, cluster.console_url(TLS_NODE), pressed)
    yield opened
    opened.close()
    assert not opened.errors


def test_overview_palette_shortcuts_and_themes(console: ConsoleTab, cluster: SecuredCluster) -> None:
    shell_scenarios.overview(console, cluster)
    shell_scenarios.palette_navigation(console)
    shell_scenarios.shortcuts_and_themes(console)


def test_topics_are_created_altered_and_deleted(console: ConsoleTab, inspector: ClusterInspector) -> None:
    topic_scenarios.topics(console, inspector)


def test_messages_are_produced_browsed_searched_and_tailed(console: ConsoleTab, inspector: ClusterInspector) -> None:
    topic_scenarios.messages(console, inspector)


def test_group_offsets_are_reset_and_deleted(console: ConsoleTab, inspector: ClusterInspector) -> None:
    group_scenarios.groups(console, inspector)


def test_schemas_are_registered_compared_and_deleted(console: ConsoleTab, inspector: ClusterInspector) -> None:
    schema_scenarios.schemas(console, inspector)
    schema_scenarios.typed_messages(console, inspector)
    schema_scenarios.deletion(console, inspector)


def test_open_transaction_is_aborted(console: ConsoleTab, inspector: ClusterInspector) -> None:
    group_scenarios.transactions(console, inspector)


def test_pipeline_tables_show_progress_and_rows(console: ConsoleTab, cluster: SecuredCluster) -> None:
    group_scenarios.tables(console, cluster)


def test_users_acls_and_quotas_are_managed(console: ConsoleTab, inspector: ClusterInspector) -> None:
    security_scenarios.users(console, inspector)
    security_scenarios.acls(console, inspector)
    security_scenarios.quotas(console, inspector)


def test_node_is_drained_and_undrained(console: ConsoleTab, inspector: ClusterInspector) -> None:
    node_scenarios.nodes(console, inspector)


def test_node_is_added_promoted_and_removed(console: ConsoleTab, inspector: ClusterInspector) -> None:
    node_scenarios.fourth_node(console, inspector)


def test_console_works_over_tls(new_tab: ConsoleTab, cluster: SecuredCluster, inspector: ClusterInspector) -> None:
    new_tab.log_in(ADMIN, cluster.passwords[ADMIN])
    new_tab.expect_text("3 of 3 agree")
    new_tab.page.locator(".pulse", has_text="Live").wait_for()
    assert new_tab.page.evaluate("location.protocol") == "https:"
    (cookie,) = new_tab.page.context.cookies()
    assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")
    new_tab.open("/topics/payments")
    new_tab.press("write-message?")
    new_tab.fill(value="unread by others", partition="0")
    _, end = inspector.offsets("payments", 0)
    new_tab.confirm("write-message")
    assert inspector.record("payments", 0, end).value() == b"unread by others"
    new_tab.page.get_by_role("link", name="Messages").click()
    new_tab.page.get_by_role("link", name="Live tail").click()
    new_tab.expect_text("Live: ")
    cluster.produce("payments", 1)
    new_tab.page.locator("tr.message").first.wait_for()


def test_restricted_user_sees_only_authorized_data(new_tab: ConsoleTab, cluster: SecuredCluster) -> None:
    page = new_tab.page
    new_tab.log_in(ADA, cluster.passwords[ADA])
    page.get_by_role("heading", name="Overview").wait_for()
    new_tab.open("/topics")
    page.get_by_role("link", name="orders").wait_for()
    assert page.get_by_role("link", name="payments").count() == 0
    new_tab.open("/topics/orders?tab=messages")
    page.locator("tr.message").first.wait_for()
    for path in ("/nodes", "/security", "/security?tab=acls", "/security?tab=quotas"):
        new_tab.open(path)
        page.locator("main .notice-hidden").first.wait_for()
    cluster.commit_offsets()
    cluster.report_progress("orders", "payments")
    producer = cluster.open_transaction()
    for path in ("/overview", "/groups", "/schemas", "/transactions", "/tables"):
        new_tab.open(path)
        page.locator("main h1").wait_for()
        shown = page.locator("main").inner_text()
        assert not [name for name in ("payments", "billing", PIPELINE) if name in shown], (path, shown)
    producer.purge()
    assert page.locator(".gone-bar").is_hidden()
    new_tab.press("log-out")
    page.get_by_label("Password").wait_for()
    new_tab.open("/topics")
    page.get_by_label("Password").wait_for()


def test_unreachable_node_is_shown_and_recovers(console: ConsoleTab, cluster: SecuredCluster) -> None:
    page = console.page
    console.open("/overview")
    console.expect_text("3 of 3 agree")
    cluster[3].kill()
    page.locator(".attention").first.wait_for()
    console.expect_text("2 of 3 nodes reachable")
    console.check_page("a-node-is-gone", "")
    console.open("/nodes")
    page.get_by_label("Node 3", exact=True).get_by_text("unreachable").wait_for()
    cluster[3].restart()
    page.get_by_label("Node 3", exact=True).get_by_text("online").wait_for()
    console.open("/overview")
    console.expect_text("3 of 3 agree")
    cluster[1].pause()
    page.locator(".gone-bar", has_text="Node 1 does not respond.").wait_for()
    page.locator(".gone-bar", has_text="old").wait_for()
    console.check_page("gone", "")
    console.press("try-now")
    page.locator(".gone-bar", has_text="Node 1 does not respond.").wait_for()
    cluster[1].resume()
    page.locator(".gone-bar").wait_for(state="hidden", timeout=WAIT_MS)
    page.locator(".pulse", has_text="Live").wait_for()
    # Sessions are kept in memory: after a restart the console asks for a login and returns to the same page.
    console.open("/groups?search=b")
    cluster[1].kill()
    page.locator(".gone-bar").wait_for()
    cluster[1].restart()
    console.enter_credentials(ADMIN, cluster.passwords[ADMIN])
    page.get_by_role("heading", name="Groups").wait_for()
    assert "search=b" in page.url


@pytest.mark.usefixtures("tab")  # skips without a browser
def test_every_button_was_pressed(request: pytest.FixtureRequest, pressed: set[str]) -> None:
    run = {item.name for item in request.session.items if item.path == request.path}
    if not {name for name in globals() if name.startswith("test_")} <= run:
        pytest.skip("not all of this file was run")
    named = action_names()
    assert named - pressed == PRESSED_ON_ONE_NODE, "buttons that no test pressed"
    assert pressed - named == set(), "actions that the scripts do not name"
