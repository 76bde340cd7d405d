"""Pluralized nouns and spelling suggestions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from chronik.wording import (
    NAME_CHARACTERS_MAX,
    find_closest_name,
    format_install_hint,
    format_spelling_suggestion,
    pluralize,
)

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0 brokers"), (1, "1 broker"), (2, "2 brokers"), (1000, "1,000 brokers")]
)
def test_noun_is_pluralized_by_count(count: int, expected: str) -> None:
    assert pluralize(count, "broker") == expected


def test_irregular_plural_is_used() -> None:
    assert (pluralize(1, "entry", "entries"), pluralize(2, "entry", "entries")) == ("1 entry", "2 entries")


def test_suggestion_ignores_case() -> None:
    assert format_spelling_suggestion("vlaue", ["key", "value"]) == "; did you mean 'value'?"
    assert format_spelling_suggestion("VALUE", ["key", "value"]) == "; did you mean 'value'?"


def test_suggestion_is_empty_when_no_name_is_similar() -> None:
    assert format_spelling_suggestion("xyz", ["key", "value"]) == format_spelling_suggestion("xyz", []) == ""


def test_suggestion_is_not_computed_for_a_name_above_the_limit() -> None:
    name = "n" * NAME_CHARACTERS_MAX
    assert find_closest_name(name, [name + "n"]) == name + "n"
    assert find_closest_name(name + "n", [name]) is None


def test_install_hints_name_extras_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    named = {extra for text in sources for extra in re.findall(r"install_hint\([\"'](\w+)[\"']\)", text)}
    assert {"spark", "bench"} <= named <= set(project["optional-dependencies"])
    assert format_install_hint("spark") == "pip install '.[spark]' in a clone of Chronik"


def test_no_message_or_page_suggests_installing_chronik_from_pypi() -> None:
    pages = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    wrong = [
        str(page) for page in pages if re.search(r"pip install '?chronik\b(?!-)", page.read_text(encoding="utf-8"))
    ]
    assert wrong == []
