"""The group state diagram in docs/internals/groups.md is generated from the transition table."""

from __future__ import annotations

from pathlib import Path

from chronik.groups.classic.transitions import render_mermaid

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "groups.md"


def test_docs_state_diagram_matches_transition_table() -> None:
    assert render_mermaid().strip() in PAGE.read_text(encoding="utf-8")
