"""The version stands in `chronik.__version__`, and everything else says the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import chronik
from chronik.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
TOLD = re.compile(r"\bchronik(?:-|==| )(\d+\.\d+\.\d+)(?![\w.]*\d)")
"""As in `chronik 1.2.3` (what `--version` prints), `chronik==1.2.3` and `chronik-1.2.3-py3-none-any.whl`. Pages tell of
earlier versions in other words."""
HEADING = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d$", re.MULTILINE)


def test_the_project_file_takes_it_from_the_source() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "chronik.__version__"}


def test_the_command_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"chronik {chronik.__version__}\n"


def test_changelog_lists_versions_newest_first_and_starts_with_current_one() -> None:
    versions = HEADING.findall((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert len(versions) > 3
    assert versions[0] == chronik.__version__
    assert versions == sorted(versions, key=lambda version: [*map(int, version.split("."))], reverse=True)


def test_pages_that_name_it_name_this_one() -> None:
    told = [(page.name, number) for page in PAGES for number in TOLD.findall(page.read_text(encoding="utf-8"))]
    assert told
    assert [(page, number) for page, number in told if number != chronik.__version__] == []
