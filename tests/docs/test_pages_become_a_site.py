"""Pages as GitHub reads them become what the site is made of, and the site needs nobody else's host."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from chronik.groups.classic.transitions import mermaid
from tests.docs.blocks import ROOT
from tools.docs.github_markdown import for_python_markdown, with_links
from tools.docs.hooks import site_target
from tools.docs.states import drawn, steps_of

MKDOCS = ROOT / ".tools" / "docs" / "bin" / "mkdocs"
FETCHED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\"\s>]+)")


@pytest.mark.parametrize(
    ("github", "python"),
    [
        ("text\n- one\n- two\n", "text\n\n- one\n- two\n"),
        ("- one\n  more\n  - inner\n", "- one\n    more\n\n    - inner\n"),
        ("1. one\n\n   ```sh\n   a\n     b\n   ```\n", "1. one\n\n    ```sh\n    a\n      b\n    ```\n"),
        ("text\n```sh\n- no list\n```\nafter\n", "text\n\n```sh\n- no list\n```\n\nafter\n"),
        ("text\n| a | b |\n|---|---|\n| 1 | 2 |\n", "text\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"),
        ("10. ten\n    more\n11. eleven\n", "10. ten\n    more\n11. eleven\n"),
        ("- one\n\nafter\n", "- one\n\nafter\n"),
    ],
)
def test_lists_blocks_and_tables_are_set_apart(github: str, python: str) -> None:
    assert for_python_markdown(github) == python


@pytest.mark.parametrize(
    ("link", "source", "page", "target"),
    [
        ("cluster.md#listeners", "docs/operations.md", "operations.md", "cluster.md#listeners"),
        ("../README.md", "docs/cluster.md", "cluster.md", "index.md"),
        ("docs/cluster.md", "README.md", "index.md", "cluster.md"),
        ("docs/decisions/", "README.md", "index.md", "decisions/README.md"),
        ("../benchmarks.md#tails", "docs/decisions/x.md", "decisions/x.md", "../benchmarks.md#tails"),
        ("../src/chronik/config.py", "docs/cluster.md", "cluster.md", None),
        ("https://example.org/a", "docs/cluster.md", "cluster.md", "https://example.org/a"),
        ("#tails", "docs/benchmarks.md", "benchmarks.md", "#tails"),
    ],
)
def test_links_lead_where_they_led(link: str, source: str, page: str, target: str | None) -> None:
    assert site_target(link, source, page) == target


def test_a_link_to_nowhere_on_the_site_keeps_its_words_and_code_is_left_alone() -> None:
    text = "[a\nb](x) and [c](y)\n```text\n[d](x)\n```\n"
    expected = "a\nb and [c](Y)\n```text\n[d](x)\n```\n"
    assert with_links(text, lambda target: None if target == "x" else target.upper()) == expected


def test_states_are_drawn_with_every_step() -> None:
    told = [step for step in steps_of(mermaid()) if "[*]" not in (step.source, step.target)]
    root = ElementTree.fromstring(drawn(mermaid()))
    words = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert len(told) > 5
    assert all(any(step.why in word for word in words) for step in told)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    if not MKDOCS.exists():
        pytest.skip("mkdocs-material is not set up: make docs")
    site = tmp_path / "site"
    command = [str(MKDOCS), "build", "--strict", "--quiet", "--site-dir", str(site)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert built.returncode == 0, built.stderr
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    fetched = {url for page in pages for url in FETCHED.findall(page.read_text(encoding="utf-8"))}
    assert fetched == set()
    assert not any('class="mermaid"' in page.read_text(encoding="utf-8") for page in pages)
