"""Generated table of the APIs and their required permissions, which is part of docs/operate/security.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from chronik.protocol.apis import APIS

PAGE: Final = Path("docs", "operate", "security.md")
"""Path of the documentation page with the permission table, relative to the repository root."""

START_MARKER, END_MARKER = "<!-- permissions: generated -->", "<!-- permissions: end -->"


def update_permissions_page(before: str) -> str:
    """Return the text of the documentation page with a regenerated permission table."""
    head, _, rest = before.partition(START_MARKER)
    _, _, tail = rest.partition(END_MARKER)
    return head + build_table() + tail


def build_table() -> str:
    """Return a Markdown table of the permissions that each API requires, enclosed by two marker lines."""
    return "\n".join([START_MARKER, "| API | key | permissions |", "|---|---|---|", *_rows(), END_MARKER])


def _rows() -> Iterator[str]:
    for api in sorted(APIS.values(), key=lambda each: (not each.is_kafka_api, each.name)):
        yield f"| {api.name} | {api.key} | {api.permissions or 'none'} |"


if __name__ == "__main__":
    PAGE.write_text(update_permissions_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
