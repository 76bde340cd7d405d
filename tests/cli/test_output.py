from __future__ import annotations

import pytest

from chronik.cli.output import format_ranges, format_table


def test_table_aligns_text_left_numbers_right_and_prints_dash_for_none() -> None:
    assert format_table(("NAME", "N", "RACK"), [("a", 5, None), ("longer", 1000, "r1")]) == (
        "NAME       N  RACK\na          5  -\nlonger  1000  r1"
    )


def test_table_without_rows_has_only_headings() -> None:
    assert format_table(("NAME", "N"), []) == "NAME  N"


@pytest.mark.parametrize(
    ("values", "text"), [([], ""), ([3], "3"), ([0, 1, 2], "0-2"), ([0, 1, 4, 6, 7], "0-1, 4, 6-7")]
)
def test_consecutive_values_are_formatted_as_range(values: list[int], text: str) -> None:
    assert format_ranges(values) == text
