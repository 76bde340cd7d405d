"""Generates the operation tables of `docs/reference/admin-api.md`: `python -m chronik.console.rest.listing`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import msgspec

from chronik.console.rest.operation_table import BASE_PATH, OPERATIONS, RestOperation

PAGE: Final = Path("docs", "reference", "admin-api.md")
"""Path of the documentation page of the admin API, relative to the repository root."""

GENERATED_MARK: Final = "<!-- from here on written by .venv/bin/python -m chronik.console.rest.listing -->"

SECTION_TITLES: Final = {
    "session": "Sessions",
    "cluster": "Cluster",
    "live": "Live cluster overview",
    "history": "History",
    "nodes": "Nodes",
    "configs": "Configs",
    "topics": "Topics",
    "consumers": "Consumers of topics",
    "statistics": "Statistics of topics",
    "messages": "Messages",
    "exports": "Export",
    "searching": "Search and tail",
    "groups": "Groups",
    "transactions": "Transactions",
    "reassignments": "Reassignments",
    "users": "Users",
    "acls": "ACLs",
    "quotas": "Quotas",
    "pipelines": "Pipelines",
}


def format_operations() -> str:
    """Format the documentation tables of all admin API operations as Markdown."""
    return "\n".join(_format_lines())


def _format_lines() -> Iterator[str]:
    for tag, title in SECTION_TITLES.items():
        yield ""
        yield f"### {title}"
        yield ""
        yield "| operation | description | parameters | response | permissions |"
        yield "|---|---|---|---|---|"
        for each in OPERATIONS:
            if each.tag == tag:
                cells = [
                    f"`{each.method} {each.path}`",
                    each.summary,
                    _format_parameters(each),
                    _format_response(each),
                    each.permissions,
                ]
                yield f"| {' | '.join(cells)} |"
    yield ""


def _format_parameters(operation: RestOperation) -> str:
    if operation.body is not None:
        return ", ".join(f"`{_format_field_name(field)}`" for field in msgspec.structs.fields(operation.body)) or "`{}`"
    query_fields = msgspec.structs.fields(operation.query)
    return ", ".join(f"`?{field.encode_name}`{' (required)' if field.required else ''}" for field in query_fields)


def _format_field_name(field: msgspec.structs.FieldInfo) -> str:
    return field.encode_name + ("" if field.required else "?")


def _format_response(operation: RestOperation) -> str:
    if operation.events is not None:
        return "events " + ", ".join(f"`{name}`" for name in operation.events)
    if operation.media_types:
        return f"a file: {' or '.join(operation.media_types)}"
    return _format_response_fields(operation.response)


def _format_response_fields(response_type: Any) -> str:
    inner = [each for each in get_args(response_type) if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    if inner:
        return f"a page of {_format_response_fields(inner[0])}"
    if get_origin(response_type) is not None:
        return "an object"
    return f"`{', '.join(field.name for field in msgspec.structs.fields(response_type))}`"


def update_page(page: str) -> str:
    """Return the text of the admin API's documentation page with its generated tables updated."""
    head, mark, _ = page.partition(GENERATED_MARK)
    return f"{head}{mark}\n\nPaths are relative to `{BASE_PATH}`.\n{format_operations()}"


if __name__ == "__main__":
    PAGE.write_text(update_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
