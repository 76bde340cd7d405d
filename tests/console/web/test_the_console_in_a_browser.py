"""The console in a real browser, on a cluster of three nodes that asks everybody who they are: every page and every
action, by mouse and by keys, light and dark, also on a phone; and what it says when a node is gone.

Whatever is done there is seen by Kafka's clients (seen.py), and no button is left that is not pressed (buttons.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.console.web import tour_of_nodes, tour_of_readers, tour_of_security, tour_of_the_frame, tour_of_topics
from tests.console.web.browser import WAIT_MS, Console, browser, chromium, pin_of
from tests.console.web.buttons import actions
from tests.console.web.secured_cluster import ADA, ADMIN, OVER_TLS, PIPELINE, SecuredCluster
from tests.console.web.seen import Seen

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    chromium()
    secured = SecuredCluster(tmp_path_factory.mktemp("cluster"))
    with secured:
        secured.fill()
        yield secured


@pytest.fixture(scope="module")
def started(cluster: SecuredCluster) -> Iterator[Any]:
    with browser(pin_of(cluster.keystore)) as running:
        yield running


@pytest.fixture(scope="module")
def pressed() -> set[str]:
    return set()


@pytest.fixture(scope="module")
def seen(cluster: SecuredCluster) -> Iterator[Seen]:
    asking = Seen(cluster)
    yield asking
    asking.close()


@pytest.fixture(scope="module")
def tab(started: Any, cluster: SecuredCluster, pressed: set[str]) -> Iterator[Console]:
    opened = Console(started, cluster.console(1), pressed)
    tour_of_the_frame.logging_in(opened, cluster)
    yield opened
    opened.close()


@pytest.fixture
def console(tab: Console) -> Iterator[Console]:
    """Of somebody who may do everything, and is logged in."""
    yield tab
    assert not tab.faults


@pytest.fixture
def stranger(started: Any, cluster: SecuredCluster, pressed: set[str]) -> Iterator[Console]:
    """Has not logged in yet, and looks at the node whose console has TLS."""
    opened = Console(started, cluster.console(OVER_TLS), pressed)
    yield opened
    opened.close()
    assert not opened.faults


def test_the_overview_and_the_frame(console: Console, cluster: SecuredCluster) -> None:
    tour_of_the_frame.overview(console, cluster)
    tour_of_the_frame.jumping(console)
    tour_of_the_frame.keys_and_colours(console)


def test_topics(console: Console, seen: Seen) -> None:
    tour_of_topics.topics(console, seen)


def test_messages(console: Console, seen: Seen) -> None:
    tour_of_topics.messages(console, seen)


def test_groups(console: Console, seen: Seen) -> None:
    tour_of_readers.groups(console, seen)


def test_transactions(console: Console, seen: Seen) -> None:
    tour_of_readers.transactions(console, seen)


def test_tables(console: Console, cluster: SecuredCluster) -> None:
    tour_of_readers.tables(console, cluster)


def test_users_rights_and_limits(console: Console, seen: Seen) -> None:
    tour_of_security.users(console, seen)
    tour_of_security.rights(console, seen)
    tour_of_security.limits(console, seen)


def test_nodes(console: Console, seen: Seen) -> None:
    tour_of_nodes.nodes(console, seen)


def test_a_node_comes_and_goes(console: Console, seen: Seen) -> None:
    tour_of_nodes.a_fourth(console, seen)


def test_over_tls_all_is_as_without(stranger: Console, cluster: SecuredCluster, seen: Seen) -> None:
    stranger.log_in(ADMIN, cluster.passwords[ADMIN])
    stranger.sees("3 of 3 agree")
    stranger.page.locator(".pulse", has_text="Live").wait_for()
    assert stranger.page.evaluate("location.protocol") == "https:"
    (cookie,) = stranger.page.context.cookies()
    assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")
    stranger.open("/topics/payments")
    stranger.press("write-message?")
    stranger.fill(value="unread by others", partition="0")
    _, end = seen.offsets("payments", 0)
    stranger.does("write-message")
    assert seen.record("payments", 0, end).value() == b"unread by others"
    stranger.page.get_by_role("link", name="Messages").click()
    stranger.page.get_by_role("link", name="Live tail").click()
    stranger.sees("Listening")
    cluster.produce("payments", 1)
    stranger.page.locator("tr.message").first.wait_for()


def test_who_may_little_sees_little(stranger: Console, cluster: SecuredCluster) -> None:
    page = stranger.page
    stranger.log_in(ADA, cluster.passwords[ADA])
    page.get_by_role("heading", name="Overview").wait_for()
    stranger.open("/topics")
    page.get_by_role("link", name="orders").wait_for()
    assert page.get_by_role("link", name="payments").count() == 0
    stranger.open("/topics/orders?tab=messages")
    page.locator("tr.message").first.wait_for()
    for place in ("/nodes", "/security", "/security?tab=acls", "/security?tab=quotas"):
        stranger.open(place)
        page.locator("main .notice-error").first.wait_for()
    cluster.read_some()
    cluster.tell_of_tables("orders", "payments")
    producer = cluster.open_transaction()
    for place in ("/overview", "/groups", "/transactions", "/tables"):
        stranger.open(place)
        page.locator("main h1").wait_for()
        shown = page.locator("main").inner_text()
        assert not [name for name in ("payments", "billing", PIPELINE) if name in shown], (place, shown)
    producer.purge()
    assert page.locator(".gone-bar").is_hidden()
    stranger.press("log-out")
    page.get_by_label("Password").wait_for()
    stranger.open("/topics")
    page.get_by_label("Password").wait_for()


def test_a_node_that_is_gone_is_shown_as_gone_and_comes_back(console: Console, cluster: SecuredCluster) -> None:
    page = console.page
    console.open("/overview")
    console.sees("3 of 3 agree")
    cluster[3].kill()
    page.get_by_label("Node 3", exact=True).get_by_text("gone").wait_for()
    page.locator(".attention").first.wait_for()
    console.look("a-node-is-gone", "")
    cluster[3].restart()
    page.get_by_label("Node 3", exact=True).get_by_text("online").wait_for()
    console.sees("3 of 3 agree")
    cluster[1].pause()
    page.locator(".gone-bar", has_text="Node 1 does not answer.").wait_for()
    page.locator(".gone-bar", has_text="old").wait_for()
    console.look("gone", "")
    console.press("try-now")
    page.locator(".gone-bar", has_text="Node 1 does not answer.").wait_for()
    cluster[1].resume()
    page.locator(".gone-bar").wait_for(state="hidden", timeout=WAIT_MS)
    page.locator(".pulse", has_text="Live").wait_for()
    # Sessions are kept in memory: after a restart it asks again, and goes on where one was.
    console.open("/groups?search=b")
    cluster[1].kill()
    page.locator(".gone-bar").wait_for()
    cluster[1].restart()
    console.say_who(ADMIN, cluster.passwords[ADMIN])
    page.get_by_role("heading", name="Groups").wait_for()
    assert "search=b" in page.url


@pytest.mark.usefixtures("tab")  # where there is no browser, nobody presses anything
def test_no_button_was_left_alone(request: pytest.FixtureRequest, pressed: set[str]) -> None:
    run = {item.name for item in request.session.items if item.path == request.path}
    if not {name for name in globals() if name.startswith("test_")} <= run:
        pytest.skip("not all of this file was run")
    named = actions()
    assert named - pressed == set(), "nobody pressed them"
    assert pressed - named == set(), "the files do not name them"
