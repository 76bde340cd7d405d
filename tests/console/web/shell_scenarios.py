"""Browser scenarios for the login, the shell around every page, and the overview."""

from __future__ import annotations

from tests.console.web.browser import DESKTOP, PHONE, TAKES_SCREENSHOTS, ConsoleTab
from tests.console.web.buttons import palette_actions
from tests.console.web.secured_cluster import ADMIN, SecuredCluster

SECONDS_OF_TRAFFIC = 150 if TAKES_SCREENSHOTS else 0
"""Seconds of traffic, so that the charts in screenshots are not empty."""


def log_in(console: ConsoleTab, cluster: SecuredCluster) -> None:
    console.log_in(ADMIN, "wrong")
    console.expect_text("the user name or the password is wrong")
    console.check_page("login")
    console.enter_credentials(ADMIN, cluster.passwords[ADMIN])
    console.expect_text("3 of 3 agree")


def overview(console: ConsoleTab, cluster: SecuredCluster) -> None:
    page = console.page
    for second in range(SECONDS_OF_TRAFFIC):
        cluster.produce("orders", 30 + 20 * (second % 7), 1000 * second)
        page.wait_for_timeout(1000)
    page.locator(".pulse", has_text="Live").wait_for()
    if TAKES_SCREENSHOTS:
        console.open("/overview?range=180")
    console.check_page("overview", "", "-dark", "-phone-dark")
    for chart in ("Throughput", "Lag"):
        page.get_by_label(chart, exact=True).get_by_role("button", name="Table").click()
        page.get_by_role("table", name=chart).wait_for()
    console.check_page("overview-tables")
    page.reload()
    page.get_by_role("table", name="Throughput").wait_for()  # the state is in the URL
    console.press("chart-or-table")
    page.get_by_role("table", name="Throughput").wait_for(state="detached")
    for action in ("history-range", "history-earlier", "history-later", "history-now"):
        console.press(action)


def palette_navigation(console: ConsoleTab) -> None:
    page = console.page
    console.open("/overview")
    page.keyboard.press("Control+k")
    page.keyboard.type("orders")
    page.get_by_role("option", name="orders").first.wait_for()
    console.check_page("palette")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="orders").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("n")
    page.get_by_role("heading", name="Nodes").wait_for()
    for action in palette_actions():
        console.press("jump?")
        page.keyboard.type(action)
        page.get_by_role("option", name=action).click()
        console.dialog().get_by_role("heading", name=action).wait_for()
        console.cancel()
        page.wait_for_url(lambda url: "do=" not in url)


def shortcuts_and_themes(console: ConsoleTab) -> None:
    page = console.page
    console.press("keys?")
    console.dialog().get_by_text("search on this page").wait_for()
    console.press("close")
    console.dialog().wait_for(state="detached")
    for theme in ("light", "dark"):
        console.press("colours")
        page.locator(f"html[data-theme={theme}]").wait_for()
    page.reload()
    page.locator("html[data-theme=dark]").wait_for()
    console.press("colours")
    page.locator("html:not([data-theme])").wait_for()
    page.set_viewport_size(PHONE)
    console.press("menu")
    page.get_by_role("link", name="Groups").click()
    page.get_by_role("heading", name="Groups").wait_for()
    page.set_viewport_size(DESKTOP)
