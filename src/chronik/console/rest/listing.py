"""The operations of the admin API as a part of a page of the docs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import msgspec

from chronik.console.rest.operation import BASE, Operation
from chronik.console.rest.table import OPERATIONS

PAGE: Final = Path("docs", "admin-api.md")
"""From the root of a clone."""

MARK: Final = "<!-- from here on written by .venv/bin/python -m chronik.console.rest.listing -->"

TITLES: Final = {
    "session": "Sessions",
    "cluster": "The cluster",
    "live": "The cluster, live",
    "nodes": "Nodes",
    "configs": "Configs",
    "topics": "Topics",
    "messages": "Messages",
    "searching": "Searching and following",
    "groups": "Groups",
    "transactions": "Transactions",
    "reassignments": "Moves",
    "users": "Users",
    "acls": "ACLs",
    "quotas": "Quotas",
    "pipelines": "Pipelines",
}


def listing() -> str:
    """Returns the part of the page behind its mark."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for tag, title in TITLES.items():
        yield ""
        yield f"### {title}"
        yield ""
        yield "| operation | what it does | takes | answers | rights |"
        yield "|---|---|---|---|---|"
        for each in OPERATIONS:
            if each.tag == tag:
                cells = [f"`{each.method} {each.path}`", each.summary, _taken(each), _answered(each), each.rights]
                yield f"| {' | '.join(cells)} |"
    yield ""


def _taken(operation: Operation) -> str:
    if operation.body is not None:
        return ", ".join(f"`{_named(field)}`" for field in msgspec.structs.fields(operation.body)) or "`{}`"
    asked = msgspec.structs.fields(operation.query)
    return ", ".join(f"`?{field.encode_name}`{' (needed)' if field.required else ''}" for field in asked)


def _named(field: msgspec.structs.FieldInfo) -> str:
    return field.encode_name + ("" if field.required else "?")


def _answered(operation: Operation) -> str:
    if operation.events is not None:
        return "events " + ", ".join(f"`{name}`" for name in operation.events)
    return _fields(operation.answer)


def _fields(shape: Any) -> str:
    inner = [each for each in get_args(shape) if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    if inner:
        return f"a page of {_fields(inner[0])}"
    if get_origin(shape) is not None:
        return "an object"
    return f"`{', '.join(field.name for field in msgspec.structs.fields(shape))}`"


def written(page: str) -> str:
    """Returns the whole page, with the part behind the mark as it is now."""
    head, mark, _ = page.partition(MARK)
    return f"{head}{mark}\n\nPaths stand behind `{BASE}`.\n{listing()}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
