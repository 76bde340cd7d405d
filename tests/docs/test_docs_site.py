"""The docs site: GitHub Markdown is converted for mkdocs, and the site loads nothing from other hosts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from chronik.groups.classic.transitions import render_mermaid
from tests.docs.blocks import ROOT
from tools.docs.github_markdown import replace_links, to_python_markdown
from tools.docs.hooks import resolve_link
from tools.docs.state_diagram import draw_states, parse_transitions

MKDOCS = ROOT / ".tools" / "docs" / "bin" / "mkdocs"
EXTERNAL_RESOURCE = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\"\s>]+)")


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
def test_github_markdown_is_converted_to_python_markdown(github: str, python: str) -> None:
    assert to_python_markdown(github) == python


@pytest.mark.parametrize(
    ("link", "source", "page", "target"),
    [
        ("cluster.md#listeners", "docs/operate/operations.md", "operate/operations.md", "cluster.md#listeners"),
        ("../../README.md", "docs/operate/cluster.md", "operate/cluster.md", "../index.md"),
        ("docs/operate/cluster.md", "README.md", "index.md", "operate/cluster.md"),
        ("docs/internals/decisions/", "README.md", "index.md", "internals/decisions/README.md"),
        (
            "../benchmarks/cluster.md#replication",
            "docs/internals/decisions/x.md",
            "internals/decisions/x.md",
            "../benchmarks/cluster.md#replication",
        ),
        ("../../src/chronik/config.py", "docs/operate/cluster.md", "operate/cluster.md", None),
        ("https://example.org/a", "docs/operate/cluster.md", "operate/cluster.md", "https://example.org/a"),
        ("#limits", "docs/internals/benchmarks/tails.md", "internals/benchmarks/tails.md", "#limits"),
    ],
)
def test_links_are_resolved_for_the_site(link: str, source: str, page: str, target: str | None) -> None:
    assert resolve_link(link, source, page) == target


def test_links_off_the_site_become_text_and_code_is_unchanged() -> None:
    text = "[a\nb](x) and [c](y)\n```text\n[d](x)\n```\n"
    expected = "a\nb and [c](Y)\n```text\n[d](x)\n```\n"
    assert replace_links(text, lambda target: None if target == "x" else target.upper()) == expected


def test_state_diagram_contains_every_transition() -> None:
    steps = [step for step in parse_transitions(render_mermaid()) if "[*]" not in (step.source, step.target)]
    root = ElementTree.fromstring(draw_states(render_mermaid()))
    texts = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert len(steps) > 5
    assert all(any(step.reason in text_line for text_line in texts) for step in steps)


@pytest.mark.slow
def test_site_builds_without_warnings_or_external_resources(tmp_path: Path) -> None:
    if not MKDOCS.exists():
        pytest.skip("mkdocs-material is not installed; run make docs")
    site = tmp_path / "site"
    command = [str(MKDOCS), "build", "--strict", "--quiet", "--site-dir", str(site)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert built.returncode == 0, built.stderr
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    external_urls = {url for page in pages for url in EXTERNAL_RESOURCE.findall(page.read_text(encoding="utf-8"))}
    assert external_urls == set()
    assert not any('class="mermaid"' in page.read_text(encoding="utf-8") for page in pages)
