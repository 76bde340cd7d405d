"""The metrics as a page of the docs: `python -m chronik.console.metrics.listing` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from chronik.console.metrics.table import SECTIONS, Family

PAGE: Final = Path("docs", "metrics.md")
"""From the root of a clone."""

MARK: Final = "<!-- from here on written by `.venv/bin/python -m chronik.console.metrics.listing` -->"
"""What stands before it in the page is written by people."""


def tables() -> str:
    return "\n".join([MARK, *(line for section in SECTIONS for line in _section(section.title, section.families)), ""])


def page(before: str) -> str:
    """Returns the page with its tables as they should be now."""
    written, _, _ = before.partition(MARK)
    return written + tables()


def _section(title: str, families: tuple[Family, ...]) -> Iterator[str]:
    yield from ("", f"### {title}", "", "| name | kind | labels | what |", "|---|---|---|---|")
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        yield f"| `{family.name}` | {family.kind} | {labels} | {family.help} |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
