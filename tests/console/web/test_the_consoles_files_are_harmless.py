"""What the console is made of: no markup from data, no host but the node, nothing inline, nothing of others changed."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from tests.console.web.buttons import MAKERS, STATIC, actions, buttons

SCRIPTS = sorted(STATIC.rglob("*.js"))
IMPORT = re.compile(r"""(?:from|import)\s+"(\.[^"]+)";""")
LINES_MAX = 400
WAYS = (r"\.innerHTML\s*=", r"\.outerHTML", "insertAdjacentHTML", r"document\.write", r"\beval\(", "new Function")


def named(path: Path) -> str:
    return path.relative_to(STATIC).as_posix()


@pytest.mark.parametrize("script", SCRIPTS, ids=named)
def test_data_never_becomes_markup(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    for way in WAYS:
        assert not re.search(way, text), way
    assert not re.search(r"""setAttribute\(\s*["']style""", text), "the policy forbids it"


@pytest.mark.parametrize("script", SCRIPTS, ids=named)
def test_what_a_script_imports_is_there(script: Path) -> None:
    for imported in IMPORT.findall(script.read_text(encoding="utf-8")):
        assert (script.parent / imported).resolve().is_file(), imported
    assert len(script.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


def test_nothing_comes_from_elsewhere() -> None:
    files = [path for path in STATIC.rglob("*") if path.suffix in {".js", ".css", ".html", ".svg"}]
    assert len(files) > 20
    for path in files:
        found = set(re.findall(r"https?://[\w.-]+", path.read_text(encoding="utf-8")))
        assert found <= {"http://www.w3.org"}, named(path)  # the name of SVG's elements, which nobody asks for


def test_every_button_says_what_it_does() -> None:
    """So that test_the_console_in_a_browser.py can tell whether it was pressed."""
    for script in SCRIPTS:
        text = script.read_text(encoding="utf-8")
        assert script == MAKERS or not re.search(r"""\bh\(\s*["']button|createElement\(["']button""", text), named(
            script
        )
    nameless = [f"{named(button.file)}: {button.code}" for button in buttons() if not button.is_named]
    assert not nameless
    assert len(actions()) > 60


def test_the_page_has_nothing_inline() -> None:
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)
    for address in re.findall(r'(?:src|href)="/ui/([^"]+)"', text):
        assert (STATIC / address).is_file()


def test_what_others_made_is_what_they_made() -> None:
    vendored = (STATIC / "vendor" / "VENDORED.md").read_text(encoding="utf-8")
    for path in (STATIC / "vendor").glob("*.woff2"):
        assert f"`{path.name}`" in vendored
        assert hashlib.sha256(path.read_bytes()).hexdigest() in vendored
