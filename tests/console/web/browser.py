"""A real browser on the console: Debian's Chromium, driven by Playwright, and axe-core, which finds what people would
stumble over.

`CHRONIK_SCREENSHOTS=1` has the tests take the pictures of docs/images/console anew.
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

from tests import long

ROOT: Final = Path(__file__).parents[3]
AXE: Final = ROOT / ".tools" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
PICTURES: Final = ROOT / "docs" / "images" / "console"
TAKES_PICTURES: Final = bool(os.environ.get("CHRONIK_SCREENSHOTS"))

WAIT_MS: Final = 60_000
"""For machines that do much else."""
DESKTOP: Final = {"width": 1280, "height": 860}
PHONE: Final = {"width": 390, "height": 844}
TALL: Final = {"overview": 1170, "overview-dark": 1170, "messages": 1120, "table": 1340}
"""Pictures that show more: the charts, a whole message, columns and rows."""
SIZES: Final = {"": DESKTOP, "-phone": PHONE}
THEMES: Final = {"": "light", "-dark": "dark"}
USUAL: Final = ("", "-phone-dark")
TELLS_WHAT_IS_PRESSED: Final = """
addEventListener("click", (event) => {
  const pressed = event.isTrusted && event.target.closest("button");
  if (pressed) wasPressed(pressed.dataset.action ?? pressed.outerHTML);
}, true);
"""


def chromium() -> str:
    """Without windows it takes a fifth less of a processor, and draws pages the same."""
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if path is None or not AXE.exists():
        pytest.skip("chromium or axe-core is not there; run tools/clients/setup browser")
    return path


def pin_of(certificate: Path) -> str:
    """What Chromium knows a certificate's key by."""
    loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
    key = loaded.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return b64encode(hashlib.sha256(key).digest()).decode()


@contextmanager
def browser(pin: str | None = None) -> Iterator[Any]:
    """`pin` is that of the one certificate that it trusts: it has no place of its own for CAs, but the machine's."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = chromium()
    pins = [] if pin is None else [f"--ignore-certificate-errors-spki-list={pin}"]
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", *pins])
        try:
            yield started
        finally:
            started.close()


class Console:
    """A tab with the console in it. `faults` is what the browser complained of, `pressed` the buttons that were."""

    def __init__(self, started: Any, address: str, pressed: set[str] | None = None) -> None:
        self.address = address if "://" in address else f"http://{address}"
        context = started.new_context(viewport=DESKTOP, color_scheme="light", reduced_motion="reduce")
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page = context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.pressed = set() if pressed is None else pressed
        self.page.expose_function("wasPressed", lambda action: self.pressed.add(action))
        self.page.add_init_script(TELLS_WHAT_IS_PRESSED)
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        # That something was not answered is what some tests are about; what the policy forbids never is.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)

    def close(self) -> None:
        self.page.context.close()

    # Ways about

    def open(self, place: str = "/overview") -> None:
        self.page.goto(f"{self.address}/#{place}")
        self.settle()

    def settle(self) -> None:
        """Waits until nothing is being asked for any more, but what goes on for good."""
        self.page.locator("h1").first.wait_for()
        self.page.locator("main .waiting").first.wait_for(state="detached")

    def log_in(self, user: str, password: str) -> None:
        self.page.goto(f"{self.address}/")
        self.say_who(user, password)

    def say_who(self, user: str, password: str) -> None:
        self.page.get_by_label("User").fill(user)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()

    def dialog(self) -> Any:
        return self.page.get_by_role("dialog")

    def cancel(self) -> None:
        self.page.keyboard.press("Escape")
        self.dialog().wait_for(state="detached")

    def press(self, action: str, *, row: str | None = None) -> None:
        """Presses the first button of that name: of all, or of the row with this key."""
        place = self.page.locator("body" if row is None else f'tr[data-key="{row}"]')
        place.locator(f'[data-action="{action}"]').first.click()

    def fill(self, **fields: str) -> None:
        """Fills the fields of a dialog, by their names."""
        for name, value in fields.items():
            field = self.dialog().locator(f'[name="{name}"]')
            if field.evaluate("each => each.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)

    def planned(self, action: str, plan: str) -> None:
        """Has a form make its plan, reads it, and has it done."""
        self.press("show-plan")
        self.does(action, plan=plan)

    def does(self, action: str, *, typed: str | None = None, plan: str | None = None) -> None:
        """Does what a dialog asks for: the plan is read, the name typed, the button pressed; then it is gone."""
        dialog = self.dialog()
        if plan is not None:
            dialog.locator(".plan", has_text=plan).wait_for()
        if typed is not None:
            dialog.get_by_role("textbox").last.fill(typed)
        dialog.locator(f'[data-action="{action}"]').click()
        dialog.wait_for(state="detached")

    def copied(self) -> str:
        """What is in the clipboard."""
        return str(self.page.evaluate("navigator.clipboard.readText()"))

    def sees(self, text: str) -> None:
        self.page.get_by_text(text).first.wait_for()

    # Looking

    def look(self, name: str, *pictures: str) -> None:
        """Has axe look at the page as it is: light on a desktop and dark on a phone, and the other two in long runs.
        `pictures` are those to take: "" on a desktop, "-phone", "-dark", "-phone-dark"."""
        found: list[str] = []
        for (ending, size), (theme, colours) in product(SIZES.items(), THEMES.items()):
            is_pictured = TAKES_PICTURES and ending + theme in pictures
            if not (is_pictured or long.LONG or ending + theme in USUAL):
                continue
            self.page.set_viewport_size(size)
            self.page.emulate_media(color_scheme=colours, reduced_motion="reduce")
            found += [f"{name}{ending}{theme}: {each}" for each in self._axe()]
            nameless = self.page.evaluate(
                "[...document.querySelectorAll('button:not([data-action])')].map(each => each.outerHTML)"
            )
            found += [f"{name}: without data-action: {each}" for each in nameless]
            if self.page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                found.append(f"{name}{ending}{theme}: wider than the window")
            if is_pictured:
                self._picture(f"{name}{ending}{theme}")
        self.page.emulate_media(color_scheme="light", reduced_motion="reduce")
        self.page.set_viewport_size(DESKTOP)
        assert not found, "\n".join(found)

    def _axe(self) -> list[str]:
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(AXE.read_text(encoding="utf-8") + ";0")
        result = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        nodes = [(each["id"], node) for each in result["violations"] for node in each["nodes"]]
        return [f"{rule}: {node['html'][:200]} ({node['failureSummary']})" for rule, node in nodes]

    def _picture(self, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.evaluate("document.querySelectorAll('.toast').forEach(each => each.remove())")
        if name in TALL:
            self.page.set_viewport_size({**DESKTOP, "height": TALL[name]})
        self.page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")
