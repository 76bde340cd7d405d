"""What docs name is there: files, rooms, links to other pages, and verbs of make. The changelog and the decisions tell
of what was, and are left out where that matters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chronik.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "src" / "chronik"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *sorted(ROOT.glob("docs/*.md"))]
ALL_PAGES = [*PAGES, *sorted(ROOT.glob("docs/decisions/*.md"))]
PLACES = (ROOT, ROOT / "src", HOUSE, HOUSE / "pipeline")
"""Paths are told from any of these."""

VERB = re.compile(r"(?:`|^|\s)make ([a-z]+(?:-[a-z]+)*)(?=[\s`]|$)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


HEADING_LINK = re.compile(r"\]\(([^)#:]*\.md)?#([^)]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = HEADING.findall(
        re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def paths_to_python(text: str) -> set[str]:
    return set(re.findall(r"`([\w./-]+/[\w.-]+\.py)`", text))


def code(text: str) -> str:
    """What stands in backticks, be it a word or a block."""
    return "\n".join(block or word for block, word in re.findall(r"```[^\n]*\n(.*?)```|`([^`\n]+)`", text, re.DOTALL))


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_that_a_page_names_exist(page: Path) -> None:
    missing = [
        path
        for path in paths_to_python(page.read_text(encoding="utf-8"))
        if not any((place / path).is_file() for place in PLACES)
    ]
    assert not missing


@pytest.mark.parametrize("page", ALL_PAGES, ids=named)
def test_pages_that_a_page_links_to_exist(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", ALL_PAGES, ids=named)
def test_headings_that_a_page_links_to_exist(page: Path) -> None:
    links = HEADING_LINK.findall(page.read_text(encoding="utf-8"))
    wrong = [
        f"{link}#{anchor}" for link, anchor in links if anchor not in anchors(page.parent / link if link else page)
    ]
    assert wrong == []


def test_the_first_page_leads_to_every_other() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.parent.name == "docs" and f"(docs/{page.name}" not in text] == []


def test_the_reference_has_every_command() -> None:
    text = (ROOT / "docs" / "cli-reference.md").read_text(encoding="utf-8")
    listed = re.findall(r"^## chronik (\w+)$", text, re.MULTILINE)
    assert listed == list(COMMANDS), "docs/cli-reference.md is written by .venv/bin/python -m tools.docs"


def test_walks_name_files_that_exist() -> None:
    """They name them without `.py`, from the house or from the pipeline."""
    walked = re.findall(r"`([a-z_]+(?:/[a-z_]+)+)/?`", ARCHITECTURE.read_text(encoding="utf-8"))
    assert len(walked) > 60
    missing = [
        path
        for path in walked
        if not any((place / f"{path}.py").is_file() or (place / path).is_dir() for place in PLACES)
    ]
    assert not missing


def test_every_room_is_named() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    rooms = [init.parent.relative_to(HOUSE) for init in HOUSE.rglob("__init__.py") if init.parent != HOUSE]
    assert len(rooms) > 40
    unnamed = [str(room) for room in rooms if f"{room.name}/" not in text]
    assert not unnamed, f"a new room is named under The rooms in {named(ARCHITECTURE)}"
    loose = [file.stem for file in HOUSE.glob("*.py") if not file.stem.startswith("__")]
    unnamed = [name for name in loose if not re.search(rf"\b{name}\b", text)]
    assert not unnamed, f"a new module beside the rooms is named at the end of The rooms in {named(ARCHITECTURE)}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_verbs_of_make_that_a_page_names_have_a_rule(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    verbs = set(VERB.findall(code(page.read_text(encoding="utf-8"))))
    assert [verb for verb in sorted(verbs) if not re.search(rf"^{verb}:", makefile, re.MULTILINE)] == []
