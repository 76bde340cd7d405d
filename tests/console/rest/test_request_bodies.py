"""The models of request bodies."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec.inspect

from chronik.console.rest.operation_table import OPERATIONS


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
