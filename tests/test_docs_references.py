"""Files, packages, links and make targets that the docs name exist. The changelog describes the past and is exempt."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from chronik.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "chronik"
ARCHITECTURE = ROOT / "docs" / "internals" / "architecture.md"
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *sorted(ROOT.glob("docs/**/*.md"))]
BASE_DIRECTORIES = (ROOT, ROOT / "src", PACKAGE, PACKAGE / "pipeline")
"""Directories to which paths in the docs are relative."""

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef

MAKE_TARGET = re.compile(r"(?:`|^|\s)make ([a-z]+(?:-[a-z]+)*)(?=[\s`]|$)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


HEADING_LINK = re.compile(r"\]\(([^)#:]*\.md)?#([^)]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub generates for the headings of a page."""
    headings = HEADING.findall(
        re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def paths_to_python(text: str) -> set[str]:
    return set(re.findall(r"`([\w./-]+/[\w.-]+\.py)`", text))


def code(text: str) -> str:
    """Return the text in backticks, inline and in blocks."""
    return "\n".join(block or word for block, word in re.findall(r"```[^\n]*\n(.*?)```|`([^`\n]+)`", text, re.DOTALL))


def relative_path(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=relative_path)
def test_python_files_named_in_docs_exist(page: Path) -> None:
    missing = [
        path
        for path in paths_to_python(page.read_text(encoding="utf-8"))
        if not any((base / path).is_file() for base in BASE_DIRECTORIES)
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=relative_path)
def test_linked_docs_pages_exist(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=relative_path)
def test_linked_docs_headings_exist(page: Path) -> None:
    links = HEADING_LINK.findall(page.read_text(encoding="utf-8"))
    wrong = [
        f"{link}#{anchor}" for link, anchor in links if anchor not in anchors(page.parent / link if link else page)
    ]
    assert wrong == []


def test_site_navigation_lists_every_docs_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = set(re.findall(r": ([\w/-]+\.md)$", navigation, re.MULTILINE))
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/*/*.md")]
    assert len(pages) > 20
    assert [page for page in pages if page not in listed] == []


def test_cli_reference_lists_every_command() -> None:
    text = (ROOT / "docs" / "reference" / "cli-reference.md").read_text(encoding="utf-8")
    listed = re.findall(r"^## chronik (\w+)$", text, re.MULTILINE)
    assert listed == list(COMMANDS), "regenerate docs/reference/cli-reference.md with .venv/bin/python -m tools.docs"


def test_modules_named_in_architecture_page_exist() -> None:
    """The page names modules without `.py`, relative to `chronik`."""
    module_paths = re.findall(r"`([a-z_]+(?:/[a-z_]+)+)/?`", ARCHITECTURE.read_text(encoding="utf-8"))
    assert len(module_paths) > 60
    missing = [
        path
        for path in module_paths
        if not any((base / f"{path}.py").is_file() or (base / path).is_dir() for base in BASE_DIRECTORIES)
    ]
    assert not missing


def test_functions_named_in_architecture_page_exist() -> None:
    """The page names functions as `Class.method` (`package/module`) or `function` (`package/`)."""
    text = " ".join(ARCHITECTURE.read_text(encoding="utf-8").split())
    named = re.findall(r"`(\w+(?:\.\w+)?)` \(`([a-z_]+(?:/[a-z_]+)*/?)`\)", text)
    assert len(named) > 60
    missing = [f"{name} in {path}" for name, path in named if name not in defined_names(path)]
    assert not missing


def defined_names(path: str) -> set[str]:
    """Return the classes, methods and functions of a module, or of all modules of a package (`a/b/`)."""
    files = (PACKAGE / path).rglob("*.py") if path.endswith("/") else [PACKAGE / f"{path}.py"]
    names = set()
    for file in files:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, FUNCTIONS)}
            if isinstance(node, ast.ClassDef | FUNCTIONS):
                names.add(node.name)
    return names


def test_architecture_page_names_every_package() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    packages = [init.parent.name for parent in (PACKAGE, PACKAGE / "pipeline") for init in parent.glob("*/__init__.py")]
    assert len(packages) > 30
    unnamed = [package for package in packages if f"`{package}/`" not in text]
    assert not unnamed, f"add the new package to the list of packages in {relative_path(ARCHITECTURE)}"


@pytest.mark.parametrize("page", PAGES, ids=relative_path)
def test_make_targets_named_in_docs_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(MAKE_TARGET.findall(code(page.read_text(encoding="utf-8"))))
    assert [target for target in sorted(targets) if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
