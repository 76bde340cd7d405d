"""The tree of a JSON Schema as the compatibility rules see it.

Each node restricts values of one kind, or combines other nodes. Keywords that no rule compares are not represented.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from chronik.formats.json_schema.documents import Draft, JsonValue


class Criterion(Enum):
    """How many of a combined schema's subschemas must accept a value."""

    ALL = "allOf"
    ANY = "anyOf"
    ONE = "oneOf"


NO_DEFAULT: Final = object()
"""The default of a schema that has none; a default may be null."""


@dataclass(eq=False, slots=True, kw_only=True)
class SchemaNode:
    """A schema that accepts any value (`{}`), and the base class of all others."""

    id: str | None = None
    title: str | None = None
    description: str | None = None
    default: Any = NO_DEFAULT
    """A comparable form of the default (`make_comparable`)."""
    connect_type: str | None = None

    @property
    def accepts_everything(self) -> bool:
        """Whether the schema is `{}` or `true`."""
        return type(self) in (SchemaNode, TrueNode)

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT


@dataclass(eq=False, slots=True, kw_only=True)
class TrueNode(SchemaNode):
    """The schema `true`."""


@dataclass(eq=False, slots=True, kw_only=True)
class FalseNode(SchemaNode):
    """The schema `false`."""


@dataclass(eq=False, slots=True, kw_only=True)
class NullNode(SchemaNode):
    """The type `null`."""


@dataclass(eq=False, slots=True, kw_only=True)
class BooleanNode(SchemaNode):
    """The type `boolean`."""


@dataclass(eq=False, slots=True, kw_only=True)
class StringNode(SchemaNode):
    """The type `string`, or keywords for strings."""

    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class NumberNode(SchemaNode):
    """The types `number` and `integer`, or keywords for numbers."""

    minimum: int | Decimal | None = None
    maximum: int | Decimal | None = None
    exclusive_minimum: int | Decimal | None = None
    exclusive_maximum: int | Decimal | None = None
    multiple_of: int | Decimal | None = None
    is_integer: bool = False


@dataclass(eq=False, slots=True, kw_only=True)
class ArrayNode(SchemaNode):
    """The type `array`, or keywords for arrays."""

    items: SchemaNode | None = None
    """The schema of all items."""
    prefix_items: list[SchemaNode] = field(default_factory=list)
    """The schemas of the first items."""
    allows_additional: bool = True
    additional: SchemaNode | None = None
    """The schema of the items after the prefix items."""
    unevaluated: SchemaNode | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_contains: int | Decimal | None = None
    max_contains: int | Decimal | None = None
    is_unique: bool = False


@dataclass(eq=False, slots=True, kw_only=True)
class ObjectTypeNode(SchemaNode):
    """The type `object`, or keywords for objects."""

    properties: dict[str, SchemaNode] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    patterns: dict[str, SchemaNode] = field(default_factory=dict)
    """The schemas of properties by the regular expressions for their names."""
    allows_additional: bool = True
    additional: SchemaNode | None = None
    unevaluated: SchemaNode | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    required_dependencies: dict[str, frozenset[str]] = field(default_factory=dict)
    """The properties that are required if a property is present."""
    schema_dependencies: dict[str, SchemaNode] = field(default_factory=dict)
    """The schemas that apply if a property is present."""


@dataclass(eq=False, slots=True, kw_only=True)
class ConstNode(SchemaNode):
    """The keyword `const`."""

    value: Any
    """A comparable form of the value."""


@dataclass(eq=False, slots=True, kw_only=True)
class EnumNode(SchemaNode):
    """The keyword `enum`."""

    values: frozenset[Any]
    """Comparable forms of the values."""


@dataclass(eq=False, slots=True, kw_only=True)
class NotNode(SchemaNode):
    """The keyword `not`."""

    schema: SchemaNode


@dataclass(eq=False, slots=True, kw_only=True)
class ConditionalNode(SchemaNode):
    """The keywords `if`, `then` and `else`, which the compatibility rules do not compare."""

    schemas: list[SchemaNode] = field(default_factory=list)


@dataclass(eq=False, slots=True, kw_only=True)
class CombinedNode(SchemaNode):
    """The keywords `allOf`, `anyOf` and `oneOf`, a list of types, or keywords that apply together."""

    criterion: Criterion
    subschemas: list[SchemaNode]
    is_implicit: bool = False
    """Whether the schema has no such keyword, but several types or kinds of keywords."""


@dataclass(eq=False, slots=True, kw_only=True)
class MetaschemaNode(SchemaNode):
    """A reference to the schema of a draft's schemas."""

    draft: Draft


@dataclass(eq=False, slots=True, kw_only=True)
class ReferenceNode(SchemaNode):
    """The keyword `$ref`."""

    reference: str
    target: SchemaNode | None = None
    """The schema to which it refers; None only while schemas are loaded."""


_ANYTHING: Final = SchemaNode()


def follow_references(node: SchemaNode) -> SchemaNode:
    """Return the schema to which a reference refers, through other references. A cycle of only references is `{}`."""
    references: dict[int, ReferenceNode] = {}
    while isinstance(node, ReferenceNode):
        if id(node) in references or node.target is None:
            node = _ANYTHING
        else:
            references[id(node)] = node
            node = node.target
    for each in references.values():
        each.target = node  # long chains are followed only once
    return node


def make_comparable(value: JsonValue) -> Any:
    """Return a hashable form of a JSON value, which is equal for equal values: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, dict):
        return "object", frozenset((key, make_comparable(each)) for key, each in value.items())
    if isinstance(value, list):
        return "array", tuple(map(make_comparable, value))
    return ("boolean", value) if isinstance(value, bool) else value


class Signatures:
    """Numbers that are equal for nodes with equal content.

    Args:
        has_targets: Whether references are equal if they refer to the same schema, instead of if their texts are equal.
    """

    def __init__(self, *, has_targets: bool = False) -> None:
        self._has_targets = has_targets
        self._numbers: dict[Any, int] = {}
        self._nodes: dict[int, int] = {}

    def get(self, node: SchemaNode) -> int:
        """Return the node's number."""
        number = self._nodes.get(id(node))
        if number is not None:
            return number
        pending = [node]
        while pending:
            current = pending[-1]
            if id(current) not in self._nodes:
                children = [child for child in _iter_children(current) if id(child) not in self._nodes]
                if children:
                    pending += children
                    continue
                self._nodes[id(current)] = self._numbers.setdefault(self._describe(current), len(self._numbers))
            pending.pop()
        return self._nodes[id(node)]

    def _describe(self, node: SchemaNode) -> Any:
        """Return a hashable form of a node's content, in which its children are numbers."""
        content = [self._sign(getattr(node, name)) for name in _CONTENT_FIELDS[type(node)]]
        if self._has_targets and isinstance(node, ReferenceNode):
            content[-1] = id(follow_references(node))
        return type(node), *content

    def _sign(self, value: Any) -> Any:
        if isinstance(value, SchemaNode):
            return "node", self._nodes[id(value)]
        if isinstance(value, dict):
            return frozenset((key, self._sign(each)) for key, each in value.items())
        return tuple(map(self._sign, value)) if isinstance(value, list) else value


def _list_node_types() -> list[type[SchemaNode]]:
    return [SchemaNode, *SchemaNode.__subclasses__()]


_CONTENT_FIELDS: Final = {
    node_type: tuple(each.name for each in fields(node_type) if each.name != "target")
    for node_type in _list_node_types()
}


def _iter_children(node: SchemaNode) -> Iterator[SchemaNode]:
    """Iterate over the nodes that a node consists of, without the targets of references."""
    for name in _CONTENT_FIELDS[type(node)]:
        value = getattr(node, name)
        if isinstance(value, SchemaNode):
            yield value
        elif isinstance(value, dict | list):
            children = value.values() if isinstance(value, dict) else value
            yield from (each for each in children if isinstance(each, SchemaNode))
