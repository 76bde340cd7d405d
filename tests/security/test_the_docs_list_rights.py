from __future__ import annotations

from pathlib import Path

from chronik.security.listing import table

DOCS = Path(__file__).parents[2] / "docs" / "security.md"


def test_the_table_in_the_docs_is_that_of_the_apis() -> None:
    assert table() in DOCS.read_text(encoding="utf-8"), "python -m chronik.security.listing prints it"
