"""The picture of a group's life in docs/groups.md is the one that the table gives."""

from __future__ import annotations

from pathlib import Path

from chronik.groups.classic.transitions import mermaid

PAGE = Path(__file__).parents[3] / "docs" / "groups.md"


def test_docs_state_diagram_matches_transition_table() -> None:
    assert mermaid().strip() in PAGE.read_text(encoding="utf-8")
