"""The table of APIs and the rights that they ask for, as a part of a page of the docs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from chronik.protocol.apis import APIS

PAGE: Final = Path("docs", "security.md")
"""From the root of a clone."""

BEGINS, ENDS = "<!-- rights: generated -->", "<!-- rights: end -->"


def page(before: str) -> str:
    """Returns the page with its table as it should be now."""
    head, _, rest = before.partition(BEGINS)
    _, _, tail = rest.partition(ENDS)
    return head + table() + tail


def table() -> str:
    """Returns it with the two lines between which it stands."""
    return "\n".join([BEGINS, "| API | key | rights |", "|---|---|---|", *_rows(), ENDS])


def _rows() -> Iterator[str]:
    for api in sorted(APIS.values(), key=lambda each: (not each.is_kafkas, each.name)):
        yield f"| {api.name} | {api.key} | {api.permissions or 'none'} |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
