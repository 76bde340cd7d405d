"""Differences between two schemas: by element (field, property, message), and by line."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from chronik.cli.schemas.schema_files import PROTOBUF
from chronik.client.registry import SchemaVersion

VALUE_CHARACTERS_MAX: Final = 80
DEPTH_MAX: Final = 200
NAMED_LISTS: Final = frozenset({"fields", "symbols", "enum", "required", "type"})
"""Keys of lists whose order rarely matters; other lists are compared by index."""

_PROTOBUF_TOKEN: Final = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{};]|[^\s{};"'/]+|/""", re.DOTALL
)
_PROTOBUF_FIELD: Final = re.compile(r"^(?P<type>.+?) (?P<name>[A-Za-z_]\w*) ?= ?(?P<rest>-?\w+.*)$")
_PROTOBUF_VALUE: Final = re.compile(r"^(?P<name>[A-Za-z_]\w*) ?= ?(?P<rest>-?\w+.*)$")


class SchemaChange(NamedTuple):
    """A difference between two schemas."""

    element: str
    """The path of the element, such as `fields.price.type`, or a Protobuf field such as `Order.price`."""
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"+ {self.element}: {_truncate(self.after or '')}"
        if self.after is None:
            return f"- {self.element}: {_truncate(self.before)}"
        return f"~ {self.element}: {_truncate(self.before)} -> {_truncate(self.after)}"


def compare_schemas(before: SchemaVersion, after: SchemaVersion) -> list[SchemaChange]:
    """Return the changed elements of a schema, sorted by their order in the schemas."""
    old, new = _describe_elements(before), _describe_elements(after)
    changes = [
        SchemaChange(element, old.get(element), new.get(element))
        for element in dict.fromkeys((*old, *new))
        if old.get(element) != new.get(element)
    ]
    return _merge_nested(changes)


def format_unified_diff(before: SchemaVersion, after: SchemaVersion, names: tuple[str, str]) -> list[str]:
    """Return a unified diff of the schemas, formatted with one element per line."""
    lines = format_schema(before).splitlines(), format_schema(after).splitlines()
    return list(difflib.unified_diff(*lines, *names, lineterm=""))


def format_schema(schema: SchemaVersion) -> str:
    """Return the text of a schema with indentation."""
    try:
        return json.dumps(json.loads(schema.schema), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return schema.schema.strip()


def _describe_elements(schema: SchemaVersion) -> dict[str, str]:
    if schema.schema_type == PROTOBUF:
        elements = dict(_iter_protobuf(schema.schema))
    else:
        try:
            elements = dict(_iter_json("", json.loads(schema.schema), 0))
        except (ValueError, RecursionError):
            elements = {}
    references = {f"references.{each.name}": f"{each.subject} version {each.version}" for each in schema.references}
    return {"schemaType": schema.schema_type} | elements | references


def _iter_json(path: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the paths and values of a JSON schema. Elements of lists that have names are found by their names."""
    if depth < DEPTH_MAX and isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _iter_json(f"{path}.{key}" if path else key, each, depth + 1)
    elif depth < DEPTH_MAX and isinstance(value, list) and _have_names(value):
        for each in value:
            named = {key: part for key, part in each.items() if key != "name"}
            yield from _iter_json(f"{path}.{each['name']}", named, depth + 1)
    else:
        yield path, json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def _have_names(values: list[Any]) -> bool:
    names = [each.get("name") for each in values if isinstance(each, dict)]
    return bool(values) and len(names) == len(values) == len(set(map(str, names))) and None not in names


def _merge_nested(changes: list[SchemaChange]) -> list[SchemaChange]:
    """Merge added or removed elements that belong to one added or removed field of an Avro record."""
    merged: list[SchemaChange] = []
    for change in changes:
        match = re.match(r"^(.*?\bfields\.[^.]+)\.(type|default)$", change.element)
        if match and merged and merged[-1].element == match[1] and (merged[-1].before is None) == (
            change.before is None
        ) and (merged[-1].after is None) == (change.after is None):  # fmt: skip
            last = merged.pop()
            merged.append(
                SchemaChange(last.element, _join(last.before, match[2], change.before),
                             _join(last.after, match[2], change.after))
            )  # fmt: skip
        elif match and match[2] == "type" and None in (change.before, change.after):
            merged.append(SchemaChange(match[1], change.before, change.after))
        else:
            merged.append(change)
    return merged


def _join(text: str | None, name: str, value: str | None) -> str | None:
    return None if text is None or value is None else f"{text}, {name} {value}"


def _iter_protobuf(text: str) -> Iterator[tuple[str, str]]:
    """Yield the statements of a Protobuf file with the scopes that contain them. Comments are ignored."""
    scope: list[str] = []
    words: list[str] = []
    for found in _PROTOBUF_TOKEN.finditer(text):
        token = found[0]
        if token.startswith(("//", "/*")):
            continue
        if token == "{":
            scope.append(" ".join(words))
            yield ".".join(map(_get_scope_name, scope)), scope[-1].partition(" ")[0]
            words = []
        elif token in "};":
            if words:
                yield _describe_statement([*map(_get_scope_name, scope)], " ".join(words))
            words = []
            if token == "}" and scope:
                scope.pop()
        else:
            words.append(token)


def _get_scope_name(opening: str) -> str:
    return opening.partition(" ")[2] or opening


def _describe_statement(scope: list[str], statement: str) -> tuple[str, str]:
    keyword = statement.partition(" ")[0]
    if keyword not in ("option", "reserved", "extensions", "import", "package", "syntax", "rpc"):
        if field := _PROTOBUF_FIELD.match(statement):
            return ".".join((*scope, field["name"])), f"{field['type']} = {field['rest']}"
        if value := _PROTOBUF_VALUE.match(statement):
            return ".".join((*scope, value["name"])), value["rest"]
    return ".".join((*scope, statement)), statement


def _truncate(text: str) -> str:
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[: VALUE_CHARACTERS_MAX - 1]}…"
