"""Derivation of the types of values from a JSON Schema.

A value is described by all schemas that apply to it together: those of `allOf` and of references, and the alternative
of `anyOf` or `oneOf` that is not null. Several alternatives have a type of their own if all are objects, or all have
the same type. Everything else is stored as JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Final, TypeAlias

from chronik.formats.codec import DECIMAL_PRECISION_MAX, UnsupportedSchemaError, encode_json
from chronik.formats.json_schema.bundle import CONTENT_ENCODING, SchemaBundle
from chronik.formats.json_schema.documents import JsonValue as SchemaValue
from chronik.formats.json_schema.value_types import (
    JsonAny,
    JsonBase64,
    JsonBoolean,
    JsonDate,
    JsonDays,
    JsonDecimal,
    JsonDecimalText,
    JsonInteger,
    JsonList,
    JsonMap,
    JsonMilliseconds,
    JsonNumber,
    JsonString,
    JsonStruct,
    JsonTimestamp,
    JsonType,
    StructField,
    to_integer,
)
from chronik.formats.json_schema.values import decode_value

COLUMNS_MAX: Final = 10_000
"""Maximum number of columns, including nested ones."""

STEPS_MAX: Final = 200_000
"""Maximum schemas that are visited. Each combination of schemas that apply together is visited once."""

ALTERNATIVES_MAX: Final = 100
"""Maximum alternatives with a common type. Values with more alternatives are JSON text."""

CHOSEN_MAX: Final = 500
"""Maximum schemas that apply together where an alternative within an alternative is considered."""

NESTING_MAX: Final = 50
"""Maximum nesting depth of types. Objects and arrays that are nested deeper are JSON text."""

_OBJECT_KEYWORDS: Final = frozenset(
    {"additionalProperties", "maxProperties", "minProperties", "patternProperties", "properties", "required"}
)
_ARRAY_KEYWORDS: Final = frozenset({"contains", "items", "maxItems", "minItems", "prefixItems", "uniqueItems"})
_STRING_KEYWORDS: Final = frozenset({"format", "maxLength", "minLength", "pattern", CONTENT_ENCODING})
_NUMBER_KEYWORDS: Final = frozenset({"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"})
_KEYWORDS: Final = {
    "object": _OBJECT_KEYWORDS,
    "array": _ARRAY_KEYWORDS,
    "string": _STRING_KEYWORDS,
    "number": _NUMBER_KEYWORDS,
}
_CHILD_KEYWORDS: Final = frozenset({"additionalProperties", "items", "patternProperties", "properties"})

_Node: TypeAlias = dict[str, SchemaValue]

_TEXTS: Final = (JsonString, JsonBase64, JsonDate, JsonTimestamp)
"""Types whose values are strings; a column of strings stores all of them."""


def derive_type(bundle: SchemaBundle) -> JsonType:
    """Derive the type of a schema's values.

    Raises:
        UnsupportedSchemaError: The schema is too complex, or describes too many columns.
    """
    derived = _Deriver(bundle).derive([bundle.root])
    if derived.column_count > COLUMNS_MAX:
        raise UnsupportedSchemaError(
            f"the JSON Schema describes {derived.column_count:,} columns, expected at most {COLUMNS_MAX:,}"
        )
    return derived


class _Deriver:
    """The state of a derivation. Types are remembered by the schemas that apply together."""

    def __init__(self, bundle: SchemaBundle) -> None:
        self._bundle = bundle
        self._types: dict[frozenset[int], JsonType] = {}
        self._merged: dict[tuple[int, int], tuple[JsonType, JsonType, JsonType]] = {}
        self._active: set[int] = set()
        """The objects and arrays whose properties or items are being derived, by identity."""
        self._depth = 0
        self._steps_left = STEPS_MAX

    def derive(self, nodes: Iterable[SchemaValue]) -> JsonType:
        """Return the type of values to which schemas apply together."""
        schemas = self._flatten(nodes)
        key = frozenset(schemas)
        found = self._types.get(key)
        if found is not None:
            return found
        if self._depth >= NESTING_MAX:
            return JsonAny()
        self._depth += 1
        derived = self._types[key] = self._derive(schemas, frozenset())
        self._depth -= 1
        return derived

    def _take(self, steps: int = 1) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise UnsupportedSchemaError("the JSON Schema is too complex: too many schemas apply together")

    def _flatten(self, nodes: Iterable[SchemaValue], *, with_alternatives: bool = True) -> dict[int, _Node]:
        """Return the schemas that apply together by identity: those of `allOf`, references and only alternatives."""
        found: dict[int, _Node] = {}
        pending = list(nodes)[::-1]
        while pending:
            node = pending.pop()
            self._take()
            if not isinstance(node, dict) or id(node) in found:
                continue
            found[id(node)] = node
            alternatives = self._list_alternatives(node) if with_alternatives else []
            if len(alternatives) == 1:
                pending.append(alternatives[0])
            pending += reversed(_get_list(node, "allOf"))
            target = self._bundle.find_target(node)
            if target is not None:
                pending.append(target)
        return found

    def _list_alternatives(self, node: _Node) -> list[SchemaValue]:
        """Return the alternatives of a schema that are not null."""
        for keyword in ("oneOf", "anyOf"):
            alternatives = [each for each in _get_list(node, keyword) if not _is_null(each)]
            if alternatives:
                return alternatives
        return []

    def _derive(self, schemas: dict[int, _Node], chosen: frozenset[int]) -> JsonType:
        """Return the type of schemas. An alternative has been chosen already for some of them."""
        for key, node in schemas.items():
            alternatives = [] if key in chosen else self._list_alternatives(node)
            if len(alternatives) > 1:
                break
        else:
            return self._derive_single(list(schemas.values()))
        if len(alternatives) > ALTERNATIVES_MAX or len(chosen) >= CHOSEN_MAX:
            return JsonAny()
        # Combinations of several lists of alternatives are not considered: only the first list counts.
        chosen = chosen.union(schemas)
        derived: JsonType | None = None
        for alternative in alternatives:
            self._take(len(schemas))
            found = self._derive({**schemas, **self._flatten([alternative])}, chosen)
            derived = found if derived is None else self._merge(derived, found)
            if isinstance(derived, JsonAny):
                break
        assert derived is not None
        return derived

    def _merge(self, first: JsonType, second: JsonType) -> JsonType:
        """Return a type that stores the values of both types."""
        if first is second:
            return first
        known = self._merged.get((id(first), id(second)))
        if known is None:
            # The types are kept, because objects that are deleted leave their identity to others.
            known = self._merged[id(first), id(second)] = (first, second, self._merge_distinct(first, second))
        return known[2]

    def _merge_distinct(self, first: JsonType, second: JsonType) -> JsonType:
        self._take()
        if isinstance(first, JsonStruct) and isinstance(second, JsonStruct):
            return self._merge_structs(first, second)
        if isinstance(first, JsonMap) and isinstance(second, JsonMap):
            return JsonMap(self._merge(first.value, second.value))
        if isinstance(first, JsonList) and isinstance(second, JsonList):
            return JsonList(self._merge(first.element, second.element))
        if type(first) is type(second):
            has_same_scale = not isinstance(first, JsonDecimal) or vars(first) == vars(second)
            return first if has_same_scale else JsonAny()
        if isinstance(first, JsonInteger | JsonNumber) and isinstance(second, JsonInteger | JsonNumber):
            return JsonNumber()
        return JsonString() if isinstance(first, _TEXTS) and isinstance(second, _TEXTS) else JsonAny()

    def _merge_structs(self, first: JsonStruct, second: JsonStruct) -> JsonType:
        self._take(len(first.fields) + len(second.fields))
        fields = dict(first.fields)
        for name, field in second.fields.items():
            other = fields.get(name)
            if other is not None:
                field = StructField(
                    self._merge(other.type, field.type),
                    is_required=other.is_required and field.is_required,
                    accepts_null=other.accepts_null or field.accepts_null,
                )
            fields[name] = field
        return JsonStruct(fields)

    def _accepts_null(self, nodes: Iterable[SchemaValue], depth: int = 0) -> bool:
        """Return whether null is valid, as far as types and alternatives tell."""
        nodes = list(nodes)
        if False in nodes or depth > NESTING_MAX:
            return False
        for node in self._flatten(nodes, with_alternatives=False).values():
            types = _list_types(node)
            if types is not None and "null" not in types:
                return False
            for keyword in ("oneOf", "anyOf"):
                alternatives = _get_list(node, keyword)
                if alternatives and not any(self._accepts_null([each], depth + 1) for each in alternatives):
                    return False
        return True

    def _derive_single(self, schemas: Sequence[_Node]) -> JsonType:
        types = _intersect_types(schemas)
        if types is None:
            types = {name for name, keywords in _KEYWORDS.items() if any(not keywords.isdisjoint(s) for s in schemas)}
        types -= {"null"}
        if "number" in types:
            types -= {"integer"}
        if len(types) != 1:
            return JsonAny()
        match types.pop():
            case "boolean":
                return JsonBoolean()
            case "integer":
                return _derive_integer(schemas)
            case "number":
                return _derive_number(schemas)
            case "string":
                return _derive_string(schemas)
            case "array":
                return self._derive_nested(schemas, self._derive_array)
            case _:
                return self._derive_nested(schemas, self._derive_object)

    def _derive_nested(self, schemas: Sequence[_Node], derive: Callable[[Sequence[_Node]], JsonType]) -> JsonType:
        nested = {id(each) for each in schemas if not _CHILD_KEYWORDS.isdisjoint(each)}
        if not self._active.isdisjoint(nested):
            return JsonAny()  # a type within itself
        self._active |= nested
        derived = derive(schemas)
        self._active -= nested
        return derived

    def _derive_array(self, schemas: Sequence[_Node]) -> JsonType:
        items = [each["items"] for each in schemas if "items" in each]
        has_positions = any(isinstance(each, list) for each in items) or any("prefixItems" in each for each in schemas)
        if has_positions or not any(isinstance(each, dict) and each for each in items):
            return JsonAny()
        return JsonList(self.derive(items))

    def _derive_object(self, schemas: Sequence[_Node]) -> JsonType:
        properties: dict[str, list[SchemaValue]] = {}
        required: set[str] = set()
        for schema in schemas:
            for name, node in _get_dict(schema, "properties").items():
                properties.setdefault(name, []).append(node)
            required.update(each for each in _get_list(schema, "required") if isinstance(each, str))
        fields = {
            name: self._derive_field(nodes, is_required=name in required)
            for name, nodes in properties.items()
            if False not in nodes
        }
        return JsonStruct(fields) if fields else self._derive_map(schemas)

    def _derive_field(self, nodes: Sequence[SchemaValue], *, is_required: bool) -> StructField:
        derived = self.derive(nodes)
        accepts_null = self._accepts_null(nodes)
        default = None
        if is_required:
            given = next((each["default"] for each in nodes if isinstance(each, dict) and "default" in each), None)
            value = decode_value(encode_json(given))
            default = derived.to_form(value) if derived.can_store(value) else None
        return StructField(derived, is_required, accepts_null, default)

    def _derive_map(self, schemas: Sequence[_Node]) -> JsonType:
        nodes: list[SchemaValue] = []
        is_open = True
        for schema in schemas:
            nodes += _get_dict(schema, "patternProperties").values()
            additional = schema.get("additionalProperties", True)
            is_open = is_open and additional in (True, {})
            if isinstance(additional, dict):
                nodes.append(additional)
        if is_open or not nodes:
            return JsonAny()
        values = [self.derive([each]) for each in nodes]
        merged = values[0]
        for each in values[1:]:
            merged = self._merge(merged, each)
        return JsonMap(merged)


def _get_list(node: _Node, keyword: str) -> list[SchemaValue]:
    found = node.get(keyword)
    return found if isinstance(found, list) else []


def _get_dict(node: _Node, keyword: str) -> dict[str, SchemaValue]:
    found = node.get(keyword)
    return found if isinstance(found, dict) else {}


def _is_null(node: SchemaValue) -> bool:
    """Return whether a schema accepts only null, or nothing."""
    return _list_types(node) == {"null"} if isinstance(node, dict) else node is False


def _list_types(node: _Node) -> set[str] | None:
    """Return the types of the values that a schema accepts, or None if it accepts all. `number` includes `integer`."""
    types: set[str] | None = None
    declared = node.get("type")
    if declared is not None:
        types = set(declared if isinstance(declared, list) else [declared])
        if "number" in types:
            types.add("integer")
    values = [node["const"]] if "const" in node else node.get("enum")
    if isinstance(values, list):
        found = set(map(_get_type, values))
        types = found if types is None else types & found
    return types


def _get_type(value: SchemaValue) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | Decimal):
        return "integer" if value == to_integer(value) else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _intersect_types(schemas: Iterable[_Node]) -> set[str] | None:
    types: set[str] | None = None
    for schema in schemas:
        found = _list_types(schema)
        if found is not None:
            types = found if types is None else types & found
    return types


def _find(schemas: Iterable[_Node], keyword: str) -> SchemaValue:
    return next((each[keyword] for each in schemas if keyword in each), None)


def _derive_integer(schemas: Sequence[_Node]) -> JsonType:
    match _find(schemas, "title"):
        case "org.apache.kafka.connect.data.Date":
            return JsonDays()
        case "org.apache.kafka.connect.data.Timestamp":
            return JsonMilliseconds()
    return JsonInteger()


def _derive_number(schemas: Sequence[_Node]) -> JsonType:
    arguments = _find_decimal_arguments(schemas)
    return JsonNumber() if arguments is None else JsonDecimal(*arguments)


def _derive_string(schemas: Sequence[_Node]) -> JsonType:
    arguments = _find_decimal_arguments(schemas)
    if arguments is not None:
        return JsonDecimalText(*arguments)
    format = _find(schemas, "format")
    if format == "date":
        return JsonDate()
    if format == "date-time":
        return JsonTimestamp()
    is_binary = (
        format == "byte" or _find(schemas, CONTENT_ENCODING) == "base64" or _find(schemas, "connect.type") == "bytes"
    )
    return JsonBase64() if is_binary else JsonString()


def _find_decimal_arguments(schemas: Sequence[_Node]) -> tuple[int, int] | None:
    """Return the precision and scale of a decimal of Kafka Connect, or None for other types."""
    parameters = _find(schemas, "connect.parameters")
    if _find(schemas, "title") != "org.apache.kafka.connect.data.Decimal" or not isinstance(parameters, dict):
        return None
    try:
        scale = int(parameters["scale"])
        precision = int(parameters.get("connect.decimal.precision", DECIMAL_PRECISION_MAX))
    except (KeyError, ValueError, TypeError):
        return None
    is_valid = 0 <= scale <= precision <= DECIMAL_PRECISION_MAX and precision > 0
    return (precision, scale) if is_valid else None
