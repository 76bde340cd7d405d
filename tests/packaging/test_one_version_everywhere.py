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
HEADING = re.compile(r"^## (\d+\.\d+\.\d+) · (.*)$", re.MULTILINE)


def test_the_project_file_takes_it_from_the_source() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "chronik.__version__"}


def test_the_command_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"chronik {chronik.__version__}\n"


def test_the_newest_step_of_the_changelog_that_is_done_is_this_version() -> None:
    """Steps that are under way come first, and are no versions yet."""
    steps = HEADING.findall((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert len(steps) > 3
    assert next(number for number, rest in steps if "(under way)" not in rest) == chronik.__version__
    in_order = sorted((number for number, _ in steps), key=lambda number: [*map(int, number.split("."))], reverse=True)
    assert [number for number, _ in steps] == in_order


def test_pages_that_name_it_name_this_one() -> None:
    told = [(page.name, number) for page in PAGES for number in TOLD.findall(page.read_text(encoding="utf-8"))]
    assert told
    assert [(page, number) for page, number in told if number != chronik.__version__] == []
