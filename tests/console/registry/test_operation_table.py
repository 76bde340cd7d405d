"""The table of registry operations, and the OpenAPI document that is generated from it."""

from __future__ import annotations

import inspect
from pathlib import Path

import msgspec

from chronik.console.registry import operations
from chronik.console.registry.listing import PAGE, update_page
from chronik.console.registry.openapi import build_document
from chronik.console.registry.operation_table import MUTATIONS, OPERATIONS, PATH_PARAMETERS
from chronik.console.registry.unsupported import UNSUPPORTED_APIS

ROOT = Path(__file__).parents[3]


def test_every_operation_is_declared_once_and_implemented() -> None:
    assert len({(operation.method, operation.path) for operation in OPERATIONS}) == len(OPERATIONS)
    for operation in OPERATIONS:
        assert set(operation.parameters) <= set(PATH_PARAMETERS)
        assert operation.summary.endswith(".")
        assert operation.permissions
        assert inspect.iscoroutinefunction(getattr(operations, operation.function))


def test_every_operation_that_changes_the_registry_is_a_mutation() -> None:
    reading = {operation.function for operation in OPERATIONS if operation.method == "GET"}
    assert not MUTATIONS & reading
    lookups = {"show_root", "look_up_schema", "check_compatibility", "check_compatibility_with_version"}
    assert {operation.function for operation in OPERATIONS} - reading - lookups == MUTATIONS


def test_docs_page_lists_every_operation() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert page == update_page(page), f"{PAGE} is outdated: run .venv/bin/python -m chronik.console.registry.listing"
    for operation in OPERATIONS:
        assert f"`{operation.method} {operation.path}`" in page


def test_docs_page_lists_every_unsupported_api() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    for each in UNSUPPORTED_APIS:
        path = each.path.replace("subjects/*", "subjects/{subject}").replace("versions/*", "versions/{version}")
        row = next(line for line in page.splitlines() if line.startswith(f"| `{path}`"))
        assert row.endswith(f"| {each.status.value} |")


def test_openapi_document_describes_every_operation() -> None:
    described = build_document()
    methods = [method for path in described["paths"].values() for method in path.values()]
    assert len(methods) == len(OPERATIONS)
    assert len({method["operationId"] for method in methods}) == len(OPERATIONS)
    assert described["servers"] == [{"url": "/registry"}]
    register = described["paths"]["/subjects/{subject}/versions"]["post"]
    assert [each["name"] for each in register["parameters"]] == ["subject", "normalize", "format"]


def test_openapi_references_resolve() -> None:
    described = build_document()
    known = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}

    def references(part: object) -> set[str]:
        if isinstance(part, dict):
            own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
            return own.union(*map(references, part.values()))
        return set().union(*map(references, part)) if isinstance(part, list) else set()

    assert references(described) == known
    assert msgspec.json.encode(described)
