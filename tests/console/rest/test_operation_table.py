from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec.inspect

from chronik.console.rest.listing import PAGE, SECTION_TITLES, format_operations, update_page
from chronik.console.rest.openapi import build_document
from chronik.console.rest.operation_table import OPERATIONS, PATH_PARAMETERS

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


def structs_in(kind: msgspec.inspect.Type) -> Iterator[msgspec.inspect.StructType]:
    if isinstance(kind, msgspec.inspect.StructType):
        yield kind
        for field in kind.fields:
            yield from structs_in(field.type)
    elif isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            yield from structs_in(each)
    elif isinstance(kind, msgspec.inspect.ListType):
        yield from structs_in(kind.item_type)
    elif isinstance(kind, msgspec.inspect.DictType):
        yield from structs_in(kind.value_type)


def test_request_body_models_forbid_unknown_fields() -> None:
    bodies = [operation.body for operation in OPERATIONS if operation.body is not None]
    found = {each.cls: each for body in bodies for each in structs_in(msgspec.inspect.type_info(body))}
    assert len(found) > len(bodies) / 2
    assert [name.__name__ for name, each in found.items() if not each.forbid_unknown_fields] == []
