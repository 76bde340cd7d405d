"""Counted nouns and spelling suggestions."""

from __future__ import annotations

import pytest

from chronik.wording import NAME_CHARACTERS_MAX, closest_name, counted, suggestion


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0 brokers"), (1, "1 broker"), (2, "2 brokers"), (1000, "1,000 brokers")]
)
def test_counted_noun_agrees_with_its_count(count: int, expected: str) -> None:
    assert counted(count, "broker") == expected


def test_counted_noun_takes_an_irregular_plural() -> None:
    assert (counted(1, "entry", "entries"), counted(2, "entry", "entries")) == ("1 entry", "2 entries")


def test_suggestion_names_the_closest_known_name_whatever_its_case() -> None:
    assert suggestion("vlaue", ["key", "value"]) == "; did you mean 'value'?"
    assert suggestion("VALUE", ["key", "value"]) == "; did you mean 'value'?"


def test_suggestion_is_empty_when_no_name_is_similar() -> None:
    assert suggestion("xyz", ["key", "value"]) == suggestion("xyz", []) == ""


def test_suggestion_is_not_computed_for_a_name_above_the_limit() -> None:
    name = "n" * NAME_CHARACTERS_MAX
    assert closest_name(name, [name + "n"]) == name + "n"
    assert closest_name(name + "n", [name]) is None
