"""Single sign-on in a browser, with npm's oidc-provider: login, reload and logout."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from chronik.testing import Broker
from chronik.testing.ports import HOST, ReservedPorts
from tests.console.web.browser import ROOT, ConsoleTab, require_chromium, start_browser

PROVIDER = ROOT / ".tools" / "oidc" / "provider.mjs"


@contextmanager
def start_provider(port: int, console_url: str) -> Iterator[str]:
    """Start the provider, whose login page accepts any name and password, and return its URL.

    Its host differs from that of the console, since a browser treats the ports of one host as one site.
    """
    if not PROVIDER.exists() or not (PROVIDER.parent / "node_modules" / "oidc-provider").exists():
        pytest.skip("oidc-provider is not installed: run tools/clients/setup oidc-provider")
    process = subprocess.Popen(
        ["node", str(PROVIDER), str(port), console_url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        yield f"http://localhost:{port}"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_user_logs_in_at_the_provider_and_out_again(tmp_path: Path) -> None:
    require_chromium()
    reserved = ReservedPorts(2)
    console_url = f"http://{HOST}:{reserved.ports[0]}"
    with start_provider(reserved.ports[1], console_url) as issuer:
        config = {
            "http": urlsplit(console_url).netloc,
            "oidc_issuer": issuer,
            "oidc_client_id": "chronik-console",
            "oidc_client_secret": "a secret/with+special=characters",
            "oidc_redirect_url": f"{console_url}/login/oidc/callback",
            "oidc_principal_claim": "email",
            "oidc_principal_rules": "RULE:^(.*)@example.com$/$1/",
        }
        with Broker(tmp_path, **config) as broker, start_browser() as browser:
            broker.create_topic("orders", 1)
            tab = ConsoleTab(browser, console_url)
            page = tab.page
            page.goto(f"{console_url}/#/topics/orders")
            page.get_by_role("link", name="Log in with single sign-on").click()

            page.locator('[name="login"]').fill("alice")
            page.locator('[name="password"]').fill("any")
            page.locator('[type="submit"]').click()
            page.get_by_role("button", name="Continue").click()  # the user's consent

            page.get_by_role("heading", name="orders").wait_for()
            assert page.url == f"{console_url}/#/topics/orders"
            assert page.locator(".who-name").inner_text() == "alice"
            page.reload()
            page.get_by_role("heading", name="orders").wait_for()

            tab.press("log-out")
            page.get_by_role("button", name="Yes, sign me out").click()
            page.get_by_role("link", name="Log in with single sign-on").wait_for()
            assert urlsplit(page.url).netloc == urlsplit(console_url).netloc
            assert tab.errors == []
            tab.close()
    reserved.release()
