"""The table of APIs and the rights that they ask for, for the docs."""

from __future__ import annotations

from collections.abc import Iterator

from chronik.protocol.apis import APIS

BEGINS, ENDS = "<!-- rights: generated -->", "<!-- rights: end -->"


def table() -> str:
    """Returns it with the two lines between which it stands in docs/security.md."""
    return "\n".join([BEGINS, "| API | key | rights |", "|---|---|---|", *_rows(), ENDS])


def _rows() -> Iterator[str]:
    for api in sorted(APIS.values(), key=lambda each: (not each.is_kafkas, each.name)):
        yield f"| {api.name} | {api.key} | {api.permissions or 'none'} |"


if __name__ == "__main__":
    print(table())
