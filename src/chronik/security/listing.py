"""Generated table of the APIs and their required permissions, which is part of docs/security.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from chronik.protocol.apis import APIS

PAGE: Final = Path("docs", "security.md")
"""Path of the documentation page, relative to the repository root."""

BEGINS, ENDS = "<!-- rights: generated -->", "<!-- rights: end -->"


def page(before: str) -> str:
    """Return the page with an up-to-date table."""
    head, _, rest = before.partition(BEGINS)
    _, _, tail = rest.partition(ENDS)
    return head + table() + tail


def table() -> str:
    """Return the table with the two marker lines around it."""
    return "\n".join([BEGINS, "| API | key | rights |", "|---|---|---|", *_rows(), ENDS])


def _rows() -> Iterator[str]:
    for api in sorted(APIS.values(), key=lambda each: (not each.is_kafkas, each.name)):
        yield f"| {api.name} | {api.key} | {api.permissions or 'none'} |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
