"""Generates the tables of `docs/reference/schema-registry-api.md`: `python -m chronik.console.registry.listing`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from chronik.console.registry.operation_table import OPERATIONS, TEXT, RegistryOperation

PAGE: Final = Path("docs", "reference", "schema-registry-api.md")
"""Path of the documentation page of the schema registry's API, relative to the repository root."""

GENERATED_MARK: Final = "<!-- from here on written by .venv/bin/python -m chronik.console.registry.listing -->"

SECTION_TITLES: Final = {
    "subjects": "Subjects and versions",
    "schemas": "Schemas",
    "compatibility": "Compatibility",
    "config": "Configs",
    "mode": "Modes",
    "contexts": "Contexts",
    "": "The server",
}
"""Titles by the first part of paths; operations of other paths are in the last section."""


def format_operations() -> str:
    """Format the documentation tables of all operations as Markdown."""
    return "\n".join(_format_lines())


def _format_lines() -> Iterator[str]:
    for section, title in SECTION_TITLES.items():
        yield ""
        yield f"### {title}"
        yield ""
        yield "| operation | description | parameters | response | permissions |"
        yield "|---|---|---|---|---|"
        for each in OPERATIONS:
            if _get_section(each) == section:
                cells = (
                    f"`{each.method} {each.path}`",
                    each.summary,
                    _format_parameters(each),
                    _format_response(each),
                    each.permissions,
                )
                yield f"| {' | '.join(cells)} |"
    yield ""


def _get_section(operation: RegistryOperation) -> str:
    first = operation.path.split("/")[1]
    return first if first in SECTION_TITLES else ""


def _format_parameters(operation: RegistryOperation) -> str:
    query = [f"`?{field.encode_name}`" for field in msgspec.structs.fields(operation.query)]
    body = [f"`{field.encode_name}`" for field in msgspec.structs.fields(operation.body)] if operation.body else []
    return ", ".join((*query, *body))


def _format_response(operation: RegistryOperation) -> str:
    if operation.response is None:
        return "none"
    if operation.response is TEXT:
        return "the text"
    return _format_type(operation.response)


def _format_type(response: Any) -> str:
    if isinstance(response, type) and issubclass(response, msgspec.Struct):
        return f"`{', '.join(field.encode_name for field in msgspec.structs.fields(response))}`"
    if arguments := get_args(response):
        return "an object" if len(arguments) > 1 else f"a list of {_format_item(arguments[0])}"
    return {int: "an integer"}.get(response, "an object")


def _format_item(item: Any) -> str:
    return {int: "integers", str: "names"}.get(item) or _format_type(item)


def update_page(page: str) -> str:
    """Return the text of the documentation page with its generated tables updated."""
    head, mark, _ = page.partition(GENERATED_MARK)
    return f"{head}{mark}\n{format_operations()}"


if __name__ == "__main__":
    PAGE.write_text(update_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
