"""The version is defined in `chronik.__version__` only, and everything else agrees with it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import chronik
from chronik.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*/*.md"))]
VERSION_REFERENCE = re.compile(r"\bchronik(?:-|==| )(\d+\.\d+\.\d+)(?![\w.]*\d)")
"""Matches `chronik 1.2.3` (the output of `--version`), `chronik==1.2.3` and `chronik-1.2.3-py3-none-any.whl`."""
HEADING = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", re.MULTILINE)


def test_pyproject_reads_version_from_source() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "chronik.__version__"}


def test_version_option_prints_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"chronik {chronik.__version__}\n"


def test_changelog_lists_versions_newest_first_and_starts_with_current_one() -> None:
    versions = HEADING.findall((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert len(versions) > 3
    assert versions[0] == chronik.__version__
    assert versions == sorted(versions, key=lambda version: [*map(int, version.split("."))], reverse=True)


def test_docs_refer_to_current_version() -> None:
    references = [
        (page.name, number) for page in PAGES for number in VERSION_REFERENCE.findall(page.read_text(encoding="utf-8"))
    ]
    assert references
    assert [(page, number) for page, number in references if number != chronik.__version__] == []
