from __future__ import annotations

import pytest

from chronik.cli.output import ranges, table
from chronik.cli.produce import numbered, split_lines


def test_texts_stand_left_and_numbers_right_and_nothing_is_a_dash() -> None:
    assert table(("NAME", "N", "RACK"), [("a", 5, None), ("longer", 1000, "r1")]) == (
        "NAME       N  RACK\na          5  -\nlonger  1000  r1"
    )


def test_a_table_without_rows_has_its_headings() -> None:
    assert table(("NAME", "N"), []) == "NAME  N"


@pytest.mark.parametrize(
    ("values", "text"), [([], ""), ([3], "3"), ([0, 1, 2], "0-2"), ([0, 1, 4, 6, 7], "0-1, 4, 6-7")]
)
def test_neighbours_are_shown_as_a_range(values: list[int], text: str) -> None:
    assert ranges(values) == text


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_are_the_same_however_they_arrive(size: int) -> None:
    text = b"one\n\ntwo\r\nthree"
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    groups = list(numbered(split_lines(chunks)))
    assert [line for _, lines in groups for line in lines] == [b"one", b"", b"two", b"three"]
    assert [number + i for number, lines in groups for i in range(len(lines))] == [1, 2, 3, 4]
