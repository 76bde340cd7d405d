"""The console in Chromium, driven by Playwright, with accessibility checks by axe-core.

With `CHRONIK_SCREENSHOTS=1`, the tests take the screenshots of docs/images/console.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests import run_size

ROOT: Final = Path(__file__).parents[3]
AXE: Final = ROOT / ".tools" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
SCREENSHOTS_DIR: Final = ROOT / "docs" / "images" / "console"
TAKES_SCREENSHOTS: Final = bool(os.environ.get("CHRONIK_SCREENSHOTS"))

WAIT_MS: Final = 60_000
"""Timeout of browser actions, long enough for busy machines."""
DESKTOP: Final = {"width": 1280, "height": 860}
PHONE: Final = {"width": 390, "height": 844}
SCREENSHOT_HEIGHTS: Final = {
    "overview": 1170,
    "overview-dark": 1170,
    "messages": 1120,
    "typed-message": 1200,
    "table": 1340,
}
"""Heights of screenshots that show more: charts, a whole message, columns and rows."""
SIZES: Final = {"": DESKTOP, "-phone": PHONE}
THEMES: Final = {"": "light", "-dark": "dark"}
DEFAULT_VARIANTS: Final = ("", "-phone-dark")
CLICK_RECORDER: Final = """
addEventListener("click", (event) => {
  const pressed = event.isTrusted && event.target.closest("button");
  if (pressed) recordClick(pressed.dataset.action ?? pressed.outerHTML);
}, true);
"""


def require_chromium() -> str:
    """Return the path of Chromium, or skip the test. The headless shell renders the same and uses less CPU."""
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if path is None or not AXE.exists():
        pytest.skip("chromium or axe-core is not installed: run tools/clients/setup browser")
    return path


def public_key_pin(certificate: Path) -> str:
    """Return the SPKI hash by which Chromium can pin a certificate."""
    loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
    key = loaded.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return b64encode(hashlib.sha256(key).digest()).decode()


@contextmanager
def start_browser(pin: str | None = None) -> Iterator[Any]:
    """Start a browser that trusts one pinned certificate, since Chromium only uses the CAs of the machine."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = require_chromium()
    pins = [] if pin is None else [f"--ignore-certificate-errors-spki-list={pin}"]
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", *pins])
        try:
            yield started
        finally:
            started.close()


class ConsoleTab:
    """A browser tab with the console. `errors` are script and console errors, `pressed` the clicked actions."""

    def __init__(self, started: Any, address: str, pressed: set[str] | None = None) -> None:
        self.address = address if "://" in address else f"http://{address}"
        context = started.new_context(viewport=DESKTOP, color_scheme="light", reduced_motion="reduce")
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page = context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.pressed = set() if pressed is None else pressed
        self.page.expose_function("recordClick", lambda action: self.pressed.add(action))
        self.page.add_init_script(CLICK_RECORDER)
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._on_console_message)

    def _on_console_message(self, message: Any) -> None:
        # Failed requests are part of some tests; violations of the content security policy never are.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def close(self) -> None:
        self.page.context.close()

    # Actions

    def open(self, path: str = "/overview") -> None:
        self.page.goto(f"{self.address}/#{path}")
        self.settle()

    def settle(self) -> None:
        """Wait until the page has finished loading."""
        self.page.locator("h1").first.wait_for()
        self.page.locator("main .waiting").first.wait_for(state="detached")

    def log_in(self, user: str, password: str) -> None:
        self.page.goto(f"{self.address}/")
        self.enter_credentials(user, password)

    def enter_credentials(self, user: str, password: str) -> None:
        self.page.get_by_label("User").fill(user)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()

    def dialog(self) -> Any:
        return self.page.get_by_role("dialog")

    def cancel(self) -> None:
        self.page.keyboard.press("Escape")
        self.dialog().wait_for(state="detached")

    def press(self, action: str, *, row: str | None = None) -> None:
        """Click the first button with an action, on the page or in the row with a key."""
        scope = self.page.locator("body" if row is None else f'tr[data-key="{row}"]')
        scope.locator(f'[data-action="{action}"]').first.click()

    def fill(self, **fields: str) -> None:
        """Fill in the fields of a dialog by name."""
        for name, value in fields.items():
            field = self.dialog().locator(f'[name="{name}"]')
            if field.evaluate("each => each.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)

    def submit_with_plan(self, action: str, plan: str) -> None:
        """Let a form show its plan, check the plan, and confirm it."""
        self.press("show-plan")
        self.confirm(action, plan=plan)

    def confirm(self, action: str, *, typed: str | None = None, plan: str | None = None) -> None:
        """Confirm a dialog: check the plan, type the name, click the button, and wait until the dialog closes."""
        dialog = self.dialog()
        if plan is not None:
            dialog.locator(".plan", has_text=plan).wait_for()
        if typed is not None:
            dialog.get_by_role("textbox").last.fill(typed)
        dialog.locator(f'[data-action="{action}"]').click()
        dialog.wait_for(state="detached")

    def clipboard_text(self) -> str:
        """Return the content of the clipboard."""
        return str(self.page.evaluate("navigator.clipboard.readText()"))

    def expect_text(self, text: str) -> None:
        self.page.get_by_text(text).first.wait_for()

    # Checks

    def check_page(self, name: str, *screenshots: str) -> None:
        """Check the accessibility of the page with axe, light on a desktop and dark on a phone, in long runs all four.

        `screenshots` are the variants to take: "" (desktop), "-phone", "-dark", "-phone-dark".
        """
        found: list[str] = []
        for (suffix, size), (theme, scheme) in product(SIZES.items(), THEMES.items()):
            takes_screenshot = TAKES_SCREENSHOTS and suffix + theme in screenshots
            if not (takes_screenshot or run_size.IS_LONG_RUN or suffix + theme in DEFAULT_VARIANTS):
                continue
            self.page.set_viewport_size(size)
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            found += [f"{name}{suffix}{theme}: {each}" for each in self._axe()]
            without_action = self.page.evaluate(
                "[...document.querySelectorAll('button:not([data-action])')].map(each => each.outerHTML)"
            )
            found += [f"{name}: without data-action: {each}" for each in without_action]
            if self.page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                found.append(f"{name}{suffix}{theme}: wider than the viewport")
            if takes_screenshot:
                self._screenshot(f"{name}{suffix}{theme}")
        self.page.emulate_media(color_scheme="light", reduced_motion="reduce")
        self.page.set_viewport_size(DESKTOP)
        assert not found, "\n".join(found)

    def _axe(self) -> list[str]:
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(AXE.read_text(encoding="utf-8") + ";0")
        result = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        nodes = [(each["id"], node) for each in result["violations"] for node in each["nodes"]]
        return [f"{rule}: {node['html'][:200]} ({node['failureSummary']})" for rule, node in nodes]

    def _screenshot(self, name: str) -> None:
        SCREENSHOTS_DIR.mkdir(parents=True, exist_ok=True)
        self.page.evaluate("document.querySelectorAll('.toast').forEach(each => each.remove())")
        if name in SCREENSHOT_HEIGHTS:
            self.page.set_viewport_size({**DESKTOP, "height": SCREENSHOT_HEIGHTS[name]})
        self.page.screenshot(path=SCREENSHOTS_DIR / f"{name}.png", animations="disabled")
