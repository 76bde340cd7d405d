"""Static checks of the console's files: no markup from data, no external hosts, no inline scripts, unmodified fonts."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from tests.console.web.buttons import BUTTON_MODULE, STATIC, action_names, find_buttons

SCRIPTS = sorted(STATIC.rglob("*.js"))
IMPORT = re.compile(r"""(?:from|import)\s+"(\.[^"]+)";""")
LINES_MAX = 450
UNSAFE_PATTERNS = (
    r"\.innerHTML\s*=",
    r"\.outerHTML",
    "insertAdjacentHTML",
    r"document\.write",
    r"\beval\(",
    "new Function",
)


def relative_name(path: Path) -> str:
    return path.relative_to(STATIC).as_posix()


@pytest.mark.parametrize("script", SCRIPTS, ids=relative_name)
def test_script_uses_no_unsafe_dom_api(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    for pattern in UNSAFE_PATTERNS:
        assert not re.search(pattern, text), pattern
    assert not re.search(r"""setAttribute\(\s*["']style""", text), "the content security policy forbids inline styles"


@pytest.mark.parametrize("script", SCRIPTS, ids=relative_name)
def test_imported_modules_exist(script: Path) -> None:
    for imported in IMPORT.findall(script.read_text(encoding="utf-8")):
        assert (script.parent / imported).resolve().is_file(), imported
    assert len(script.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


def test_static_files_reference_no_external_hosts() -> None:
    files = [path for path in STATIC.rglob("*") if path.suffix in {".js", ".css", ".html", ".svg"}]
    assert len(files) > 20
    for path in files:
        found = set(re.findall(r"https?://[\w.-]+", path.read_text(encoding="utf-8")))
        assert found <= {"http://www.w3.org"}, relative_name(path)  # the SVG namespace is never fetched


def test_every_button_names_its_action() -> None:
    """Every button needs an action, so that test_console_in_browser.py can record its clicks."""
    for script in SCRIPTS:
        text = script.read_text(encoding="utf-8")
        assert script == BUTTON_MODULE or not re.search(r"""\bh\(\s*["']button|createElement\(["']button""", text), (
            relative_name(script)
        )
    without_action = [
        f"{relative_name(button.file)}: {button.code}" for button in find_buttons() if not button.is_named
    ]
    assert not without_action
    assert len(action_names()) > 60


def test_scripts_pluralize_counted_nouns() -> None:
    """Scripts format counts of nouns with format.plural. Text such as `${count} brokers` is wrong for a count of 1."""
    nouns = "brokers|nodes|topics|partitions|replicas|records|messages|groups|members|ACLs|columns|versions"
    for script in SCRIPTS:
        found = re.findall(rf"\$\{{[^}}]*\}} (?:{nouns})\b", script.read_text(encoding="utf-8"))
        assert not found, relative_name(script)


def test_index_page_has_no_inline_scripts_or_styles() -> None:
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)
    for address in re.findall(r'(?:src|href)="/ui/([^"]+)"', text):
        assert (STATIC / address).is_file()


def test_vendored_fonts_match_recorded_hashes() -> None:
    vendored = (STATIC / "vendor" / "VENDORED.md").read_text(encoding="utf-8")
    for path in (STATIC / "vendor").glob("*.woff2"):
        assert f"`{path.name}`" in vendored
        assert hashlib.sha256(path.read_bytes()).hexdigest() in vendored
