from __future__ import annotations

from pathlib import Path

from chronik.security.listing import BEGINS, ENDS, PAGE, page

ROOT = Path(__file__).parents[2]


def test_permission_table_in_docs_is_current() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert text.count(BEGINS) == text.count(ENDS) == 1
    is_current = text == page(text)
    assert is_current, f"regenerate the table in {PAGE} with .venv/bin/python -m chronik.security.listing"


def test_updating_the_table_keeps_surrounding_text() -> None:
    written = page(f"before\n{BEGINS}\n| Gone | 99 | none |\n{ENDS}\nbehind\n")
    assert written.startswith(f"before\n{BEGINS}\n| API | key | rights |")
    assert written.endswith(f"|\n{ENDS}\nbehind\n")
    assert "Gone" not in written
