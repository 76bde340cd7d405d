from __future__ import annotations

from pathlib import Path

from chronik.security.listing import BEGINS, ENDS, PAGE, page

ROOT = Path(__file__).parents[2]


def test_the_table_in_the_docs_is_that_of_the_apis() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert text.count(BEGINS) == text.count(ENDS) == 1
    is_new = text == page(text)
    assert is_new, f"the table of {PAGE} is written anew by .venv/bin/python -m chronik.security.listing"


def test_what_stands_around_the_table_stays() -> None:
    written = page(f"before\n{BEGINS}\n| Gone | 99 | none |\n{ENDS}\nbehind\n")
    assert written.startswith(f"before\n{BEGINS}\n| API | key | rights |")
    assert written.endswith(f"|\n{ENDS}\nbehind\n")
    assert "Gone" not in written
