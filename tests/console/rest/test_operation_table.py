from __future__ import annotations

from pathlib import Path

from chronik.console.rest.listing import PAGE, SECTION_TITLES, format_operations, update_page
from chronik.console.rest.openapi import build_document
from chronik.console.rest.operation import PATH_PARAMETERS
from chronik.console.rest.operation_table import OPERATIONS

ROOT = Path(__file__).parents[3]


def test_docs_page_lists_every_operation() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert page == update_page(page), f"{PAGE} is outdated: run .venv/bin/python -m chronik.console.rest.listing"
    assert {operation.tag for operation in OPERATIONS} == set(SECTION_TITLES)
    listed = format_operations()
    for operation in OPERATIONS:
        assert f"`{operation.method} {operation.path}`" in listed


def test_every_operation_is_declared_and_documented_once() -> None:
    assert len({operation.id for operation in OPERATIONS}) == len(OPERATIONS)
    assert len({(operation.method, operation.path) for operation in OPERATIONS}) == len(OPERATIONS)
    described = build_document()
    assert sum(len(methods) for methods in described["paths"].values()) == len(OPERATIONS)
    for operation in OPERATIONS:
        assert set(operation.parameters) <= set(PATH_PARAMETERS)
        assert operation.summary.endswith(".")
        assert operation.permissions
        assert (operation.body is not None) == (operation.method in ("POST", "PUT", "PATCH"))
        assert (operation.events is None) != (operation.response is None)


def test_openapi_references_resolve() -> None:
    described = build_document()
    known = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}

    def references(part: object) -> set[str]:
        if isinstance(part, dict):
            own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
            return own.union(*map(references, part.values()))
        return set().union(*map(references, part)) if isinstance(part, list) else set()

    assert references(described) == known
