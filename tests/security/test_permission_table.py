from __future__ import annotations

from pathlib import Path

from chronik.security.permission_table import END_MARKER, PAGE, START_MARKER, update_permissions_page

ROOT = Path(__file__).parents[2]


def test_permission_table_in_docs_is_current() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert text.count(START_MARKER) == text.count(END_MARKER) == 1
    is_current = text == update_permissions_page(text)
    assert is_current, f"regenerate the table in {PAGE} with .venv/bin/python -m chronik.security.permission_table"


def test_updating_the_table_keeps_surrounding_text() -> None:
    written = update_permissions_page(f"before\n{START_MARKER}\n| Gone | 99 | none |\n{END_MARKER}\nbehind\n")
    assert written.startswith(f"before\n{START_MARKER}\n| API | key | permissions |")
    assert written.endswith(f"|\n{END_MARKER}\nbehind\n")
    assert "Gone" not in written
