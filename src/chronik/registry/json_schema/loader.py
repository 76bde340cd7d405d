"""Loading of JSON Schema documents into nodes.

Confluent's registry loads drafts 4 to 7 with one library and later drafts with another, and compares the results with
the same rules. `_ClassicLoader` and `_ModernLoader` build the nodes that these libraries build, which matters where
keywords apply together: `{"type": "object", "enum": […]}` becomes an `allOf` of two subschemas, for example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, TypeVar

from chronik.formats.json_schema.documents import (
    Draft,
    JsonValue,
    Location,
    Metaschema,
    SchemaDocuments,
    describe_json,
)
from chronik.linear_regex import EXPRESSION_CHARACTERS_MAX, Pattern, PatternError
from chronik.registry.json_schema.nodes import (
    NO_DEFAULT,
    ArrayNode,
    BooleanNode,
    CombinedNode,
    ConditionalNode,
    ConstNode,
    Criterion,
    EnumNode,
    FalseNode,
    MetaschemaNode,
    NotNode,
    NullNode,
    NumberNode,
    ObjectTypeNode,
    ReferenceNode,
    SchemaNode,
    StringNode,
    TrueNode,
    make_comparable,
)
from chronik.registry.schema import InvalidSchemaError

SUBSCHEMAS_MAX: Final = 20_000
"""Maximum number of subschemas in a schema and its references."""

PATTERNS_MAX: Final = 1000
"""Maximum number of regular expressions in a schema and its references. Compiling one takes up to 1 ms."""

TYPES_MAX: Final = 20
"""Maximum number of types in a list of types. There are seven, and they may be repeated."""

INT32_MAX: Final = 2**31 - 1

_ARRAY_KEYWORDS: Final = ("items", "additionalItems", "minItems", "maxItems", "uniqueItems")
_OBJECT_KEYWORDS: Final = (
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "dependencies",
    "patternProperties",
    "additionalProperties",
)
_NUMBER_KEYWORDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_STRING_KEYWORDS: Final = ("minLength", "maxLength", "pattern", "format")
_CONDITIONAL_KEYWORDS: Final = ("if", "then", "else")
_CRITERIA: Final = {each.value: each for each in Criterion}

_SYNTAX_ERRORS: Final = (
    "missing ]",
    "missing )",
    "unexpected )",
    "no argument for repetition operator",
    "trailing \\",
    "invalid character class range",
)
"""The errors of RE2 for patterns that are invalid everywhere. It lacks features that other engines have."""

N = TypeVar("N", bound=SchemaNode)


def load(documents: SchemaDocuments, references: list[ReferenceNode]) -> SchemaNode:
    """Load a schema and all schemas to which it refers.

    Args:
        documents: The schemas in JSON.
        references: The list to which all reference nodes are added, also if an error is raised.

    Raises:
        InvalidSchemaError: A keyword has an invalid value, or there are too many subschemas.
        DocumentError: A reference cannot be resolved.
    """
    loader = _ClassicLoader if documents.draft <= Draft.DRAFT_7 else _ModernLoader
    return loader(documents, references).load_root()


class _Schema:
    """A JSON object that is a schema, with functions that read its keywords."""

    __slots__ = ("fields", "location", "path")

    def __init__(self, location: Location, path: tuple[Any, ...]) -> None:
        assert isinstance(location.value, dict)
        self.fields: dict[str, JsonValue] = location.value
        self.location = location
        self.path = path

    def fail(self, keyword: str, expected: str) -> InvalidSchemaError:
        """Return the error for a keyword with an invalid value."""
        return InvalidSchemaError(
            f"{format_pointer((*self.path, keyword))}: expected {expected}, found {describe_json(self.fields[keyword])}"
        )

    def get_string(self, keyword: str) -> str | None:
        value = self.fields.get(keyword)
        if value is not None and not isinstance(value, str):
            raise self.fail(keyword, "a string")
        return value

    def get_boolean(self, keyword: str, default: bool = False) -> bool:
        value = self.fields.get(keyword, default)
        if not isinstance(value, bool):
            raise self.fail(keyword, "a boolean")
        return value

    def get_number(self, keyword: str) -> int | Decimal | None:
        value = self.fields.get(keyword)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | Decimal)):
            raise self.fail(keyword, "a number")
        return value

    def get_count(self, keyword: str) -> int | None:
        """Return the value of a keyword such as `maxLength`."""
        value = self.get_number(keyword)
        if value is None:
            return None
        if not -INT32_MAX - 1 <= value <= INT32_MAX or value != int(value):
            raise self.fail(keyword, "an integer of 32 bits")
        return int(value)

    def get_strings(self, keyword: str) -> list[str]:
        values = self.get_array(keyword)
        if not all(isinstance(each, str) for each in values):
            raise self.fail(keyword, "an array of strings")
        return values

    def get_array(self, keyword: str) -> list[JsonValue]:
        value = self.fields.get(keyword, [])
        if not isinstance(value, list):
            raise self.fail(keyword, "an array")
        return value

    def get_object(self, keyword: str) -> dict[str, JsonValue]:
        value = self.fields.get(keyword, {})
        if not isinstance(value, dict):
            raise self.fail(keyword, "an object")
        return value

    def get_types(self) -> list[str]:
        """Return the types in a list of types."""
        types = self.get_strings("type")
        if len(types) > TYPES_MAX:
            raise InvalidSchemaError(f"{format_pointer((*self.path, 'type'))}: more than {TYPES_MAX} types")
        return types


class _Loader:
    """The parts of loading that all drafts have in common."""

    def __init__(self, documents: SchemaDocuments, references: list[ReferenceNode]) -> None:
        self._documents = documents
        self._references = references
        self._nodes: dict[int, SchemaNode] = {}
        """The nodes of JSON objects by identity: a subschema is loaded once, however often it is referred to."""
        self._unresolved: list[tuple[ReferenceNode, Location]] = []
        self._patterns: set[str] = set()

    def load_root(self) -> SchemaNode:
        root = self.load(self._documents.root, ())
        while self._unresolved:
            node, location = self._unresolved.pop()
            self._references.append(node)
            target = self._documents.resolve(node.reference, location)
            if isinstance(target.value, Metaschema):
                node.target = MetaschemaNode(draft=target.value.draft)
            else:
                node.target = self.load(target, (node.reference,))
        return root

    def load(self, location: Location, path: tuple[Any, ...]) -> SchemaNode:
        value = location.value
        if isinstance(value, bool):
            return TrueNode() if value else FalseNode()
        if not isinstance(value, dict):
            raise InvalidSchemaError(
                f"{format_pointer(path)}: a schema is an object or a boolean, this is {describe_json(value)}"
            )
        node = self._nodes.get(id(value))
        if node is None:
            if len(self._nodes) >= SUBSCHEMAS_MAX:
                raise InvalidSchemaError(f"there are more than {SUBSCHEMAS_MAX:,} subschemas")
            node = self.load_object(_Schema(location, path))
            self._nodes[id(value)] = node
        return node

    def load_object(self, schema: _Schema) -> SchemaNode:
        raise NotImplementedError

    def load_keyword(self, schema: _Schema, keyword: str) -> SchemaNode | None:
        """Load the schema that is a keyword's value, or return None without the keyword."""
        return self.load_child(schema, schema.fields[keyword], keyword) if keyword in schema.fields else None

    def load_child(self, schema: _Schema, value: JsonValue, *path: str | int) -> SchemaNode:
        return self.load(self._documents.enter(value, schema.location), (*schema.path, *path))

    def load_array(self, schema: _Schema, keyword: str) -> list[SchemaNode]:
        return [self.load_child(schema, each, keyword, index) for index, each in enumerate(schema.get_array(keyword))]

    def load_map(self, schema: _Schema, keyword: str) -> dict[str, SchemaNode]:
        return {key: self.load_child(schema, each, keyword, key) for key, each in schema.get_object(keyword).items()}

    def load_patterns(self, schema: _Schema) -> dict[str, SchemaNode]:
        patterns = self.load_map(schema, "patternProperties")
        for pattern in patterns:
            self._check_pattern(pattern, (*schema.path, "patternProperties", pattern))
        return patterns

    def load_pattern(self, schema: _Schema) -> str | None:
        """Return the value of `pattern`."""
        pattern = schema.get_string("pattern")
        if pattern is not None:
            self._check_pattern(pattern, (*schema.path, "pattern"))
        return pattern

    def _check_pattern(self, pattern: str, path: tuple[Any, ...]) -> None:
        """Check the syntax of a regular expression, which may have features that RE2 lacks."""
        if pattern in self._patterns:
            return
        self._patterns.add(pattern)
        if len(self._patterns) > PATTERNS_MAX:
            raise InvalidSchemaError(f"there are more than {PATTERNS_MAX:,} regular expressions")
        if len(pattern) > EXPRESSION_CHARACTERS_MAX:
            return
        try:
            Pattern(pattern)
        except PatternError as error:
            if str(error).startswith(_SYNTAX_ERRORS):
                raise InvalidSchemaError(
                    f"{format_pointer(path)}: invalid regular expression {pattern!r}: {error}"
                ) from None

    def load_reference(self, schema: _Schema, keyword: str = "$ref") -> ReferenceNode:
        reference = schema.get_string(keyword)
        if reference is None:
            raise schema.fail(keyword, "a string")
        node = ReferenceNode(reference=reference)
        self._unresolved.append((node, schema.location))
        return node

    def load_enum(self, schema: _Schema) -> EnumNode:
        return EnumNode(values=frozenset(map(make_comparable, schema.get_array("enum"))))

    def set_annotations(self, node: N, schema: _Schema) -> N:
        """Set the attributes that all kinds of nodes have."""
        node.title = schema.get_string("title")
        node.description = schema.get_string("description")
        node.default = make_comparable(schema.fields["default"]) if "default" in schema.fields else NO_DEFAULT
        connect_type = schema.fields.get("connect.type")
        node.connect_type = connect_type if isinstance(connect_type, str) else None
        return node


class _ClassicLoader(_Loader):
    """Drafts 4, 6 and 7: a type and its keywords become one node, `$ref` hides all other keywords."""

    def load_object(self, schema: _Schema) -> SchemaNode:
        if "$ref" in schema.fields:
            return self._set_all_annotations(self.load_reference(schema), schema)
        nodes = list(self._iter_nodes(schema))
        if len(nodes) == 1:
            return self._set_all_annotations(nodes[0], schema)
        if nodes:
            combined = CombinedNode(criterion=Criterion.ALL, subschemas=nodes, is_implicit=True)
            return self._set_all_annotations(combined, schema)
        return self._set_all_annotations(SchemaNode(), schema)

    def _set_all_annotations(self, node: SchemaNode, schema: _Schema) -> SchemaNode:
        node.id = schema.get_string(self._documents.draft.id_keyword)
        return self.set_annotations(node, schema)

    def _iter_nodes(self, schema: _Schema) -> Iterator[SchemaNode]:
        draft, fields = self._documents.draft, schema.fields
        if "enum" in fields:
            yield self.load_enum(schema)
        for keyword, criterion in _CRITERIA.items():
            if keyword in fields:
                yield CombinedNode(criterion=criterion, subschemas=self.load_array(schema, keyword))
        if "not" in fields:
            yield NotNode(schema=self.load_child(schema, fields["not"], "not"))
        if "const" in fields and draft > Draft.DRAFT_4:
            yield ConstNode(value=make_comparable(fields["const"]))
        types = self._get_types(schema)
        if isinstance(fields.get("type"), list):
            subschemas = [self._load_type(schema, each) for each in types]
            yield CombinedNode(criterion=Criterion.ANY, subschemas=subschemas)
        elif types:
            yield self._load_type(schema, types[0])
        names = fields.keys()
        array_keywords = _ARRAY_KEYWORDS if draft == Draft.DRAFT_4 else (*_ARRAY_KEYWORDS, "contains")
        if "array" not in types and not names.isdisjoint(array_keywords):
            yield self._load_array_node(schema)
        object_keywords = _OBJECT_KEYWORDS if draft == Draft.DRAFT_4 else (*_OBJECT_KEYWORDS, "propertyNames")
        if "object" not in types and not names.isdisjoint(object_keywords):
            yield self._load_object_node(schema)
        if not {"number", "integer"}.intersection(types) and not names.isdisjoint(_NUMBER_KEYWORDS):
            yield self._load_number_node(schema)
        if "string" not in types and not names.isdisjoint(_STRING_KEYWORDS):
            yield self._load_string_node(schema)
        if draft >= Draft.DRAFT_7 and not names.isdisjoint(_CONDITIONAL_KEYWORDS):
            schemas = [self.load_keyword(schema, keyword) for keyword in _CONDITIONAL_KEYWORDS]
            yield ConditionalNode(schemas=[each for each in schemas if each is not None])

    def _get_types(self, schema: _Schema) -> list[str]:
        value = schema.fields.get("type")
        if isinstance(value, list):
            return schema.get_types()
        if "type" not in schema.fields:
            return []
        if not isinstance(value, str):
            raise schema.fail("type", "a string or an array of strings")
        return [value]

    def _load_type(self, schema: _Schema, name: str) -> SchemaNode:
        loaders: Mapping[str, Callable[[_Schema], SchemaNode]] = {
            "string": self._load_string_node,
            "number": self._load_number_node,
            "array": self._load_array_node,
            "object": self._load_object_node,
        }
        if name in loaders:
            return loaders[name](schema)
        if name == "integer":
            node = self._load_number_node(schema)
            node.is_integer = True
            return node
        return create_type_node(schema, name)

    def _load_string_node(self, schema: _Schema) -> StringNode:
        schema.get_string("format")
        return StringNode(
            min_length=schema.get_count("minLength"),
            max_length=schema.get_count("maxLength"),
            pattern=self.load_pattern(schema),
        )

    def _load_number_node(self, schema: _Schema) -> NumberNode:
        node = NumberNode(
            minimum=schema.get_number("minimum"),
            maximum=schema.get_number("maximum"),
            multiple_of=get_multiple_of(schema),
        )
        if self._documents.draft == Draft.DRAFT_4:  # booleans, which no rule compares
            schema.get_boolean("exclusiveMinimum")
            schema.get_boolean("exclusiveMaximum")
        else:
            node.exclusive_minimum = schema.get_number("exclusiveMinimum")
            node.exclusive_maximum = schema.get_number("exclusiveMaximum")
        return node

    def _load_array_node(self, schema: _Schema) -> ArrayNode:
        node = ArrayNode(
            min_items=schema.get_count("minItems"),
            max_items=schema.get_count("maxItems"),
            is_unique=schema.get_boolean("uniqueItems"),
            min_contains=get_optional_number(schema, "minContains"),
            max_contains=get_optional_number(schema, "maxContains"),
        )
        if isinstance(schema.fields.get("items"), list):
            node.prefix_items = self.load_array(schema, "items")
        else:
            node.items = self.load_keyword(schema, "items")
        if isinstance(schema.fields.get("additionalItems", True), bool):
            node.allows_additional = schema.get_boolean("additionalItems", default=True) or node.items is not None
        else:
            node.additional = self.load_keyword(schema, "additionalItems")
        if self._documents.draft > Draft.DRAFT_4:
            self.load_keyword(schema, "contains")
        return node

    def _load_object_node(self, schema: _Schema) -> ObjectTypeNode:
        node = ObjectTypeNode(
            min_properties=schema.get_count("minProperties"),
            max_properties=schema.get_count("maxProperties"),
            properties=self.load_map(schema, "properties"),
            required=frozenset(schema.get_strings("required")),
            patterns=self.load_patterns(schema),
        )
        if isinstance(schema.fields.get("additionalProperties", True), bool):
            node.allows_additional = schema.get_boolean("additionalProperties", default=True)
        else:
            node.additional = self.load_keyword(schema, "additionalProperties")
        for key, value in schema.get_object("dependencies").items():
            if isinstance(value, list):
                if not all(isinstance(each, str) for each in value):
                    raise schema.fail("dependencies", "an object of schemas and arrays of strings")
                if value:
                    node.required_dependencies[key] = frozenset(value)
            else:
                node.schema_dependencies[key] = self.load_child(schema, value, "dependencies", key)
        if self._documents.draft > Draft.DRAFT_4:
            self.load_keyword(schema, "propertyNames")
        return node


class _ModernLoader(_Loader):
    """Drafts 2019-09 and 2020-12: each keyword becomes a node, and nodes of the same kind are merged into one."""

    def load_object(self, schema: _Schema) -> SchemaNode:
        product: SchemaNode | None = None
        for node in self._iter_nodes(schema):
            product = node if product is None else _join(product, node)
        if product is None:
            product = SchemaNode()
        elif len(_flatten(product)) == 1:
            product = _flatten(product)[0]
        if "$defs" in schema.fields:
            self.load_map(schema, "$defs")
        schema.get_string("$id")
        return self.set_annotations(product, schema)

    def _iter_nodes(self, schema: _Schema) -> Iterator[SchemaNode]:
        for keyword in schema.fields:
            loader = _MODERN_LOADERS.get(keyword)
            node = None if loader is None else loader(self, schema, keyword)
            if node is not None:
                yield node
        if schema.fields.get("properties"):
            yield ObjectTypeNode(properties=self.load_map(schema, "properties"))
        else:
            schema.get_object("properties")
        patterns = self.load_patterns(schema)
        if patterns:
            yield ObjectTypeNode(patterns=patterns)
        if "unevaluatedItems" in schema.fields:
            yield ArrayNode(unevaluated=self.load_keyword(schema, "unevaluatedItems"))
        if "unevaluatedProperties" in schema.fields:
            yield ObjectTypeNode(unevaluated=self.load_keyword(schema, "unevaluatedProperties"))

    def load_type(self, schema: _Schema, keyword: str) -> SchemaNode:
        value = schema.fields[keyword]
        if isinstance(value, str):
            return create_type_node(schema, value)
        if not isinstance(value, list):
            raise schema.fail(keyword, "a string or an array of strings")
        subschemas = [create_type_node(schema, each) for each in schema.get_types()]
        return CombinedNode(criterion=Criterion.ANY, subschemas=subschemas, is_implicit=True)

    def load_combination(self, schema: _Schema, keyword: str) -> SchemaNode:
        subschemas = [part for each in self.load_array(schema, keyword) for part in _flatten(each)]
        return CombinedNode(criterion=_CRITERIA[keyword], subschemas=subschemas)

    def load_not(self, schema: _Schema, keyword: str) -> SchemaNode:
        return NotNode(schema=self.load_child(schema, schema.fields[keyword], keyword))

    def load_const(self, schema: _Schema, keyword: str) -> SchemaNode:
        return ConstNode(value=make_comparable(schema.fields[keyword]))

    def load_enum_keyword(self, schema: _Schema, keyword: str) -> SchemaNode:
        return self.load_enum(schema)

    def load_conditional(self, schema: _Schema, keyword: str) -> SchemaNode:
        schemas = [self.load_keyword(schema, each) for each in _CONDITIONAL_KEYWORDS]
        return ConditionalNode(schemas=[each for each in schemas if each is not None])

    def load_string_keyword(self, schema: _Schema, keyword: str) -> SchemaNode:
        if keyword == "pattern":
            return StringNode(pattern=self.load_pattern(schema))
        count = schema.get_count(keyword)
        return StringNode(min_length=count) if keyword == "minLength" else StringNode(max_length=count)

    def load_number_keyword(self, schema: _Schema, keyword: str) -> SchemaNode:
        if keyword == "multipleOf":
            return NumberNode(multiple_of=get_multiple_of(schema))
        node = NumberNode()
        attribute = {"exclusiveMinimum": "exclusive_minimum", "exclusiveMaximum": "exclusive_maximum"}
        setattr(node, attribute.get(keyword, keyword), schema.get_number(keyword))
        return node

    def load_array_keyword(self, schema: _Schema, keyword: str) -> SchemaNode:
        if keyword == "uniqueItems":
            return ArrayNode(is_unique=schema.get_boolean(keyword))
        count = schema.get_count(keyword)
        return ArrayNode(min_items=count) if keyword == "minItems" else ArrayNode(max_items=count)

    def load_items(self, schema: _Schema, keyword: str) -> SchemaNode:
        if isinstance(schema.fields[keyword], list):  # 2019-09, which Confluent's registry does not load
            return ArrayNode(prefix_items=self.load_array(schema, keyword))
        items = self.load_child(schema, schema.fields[keyword], keyword)
        has_prefix = bool(schema.get_array("prefixItems"))
        if isinstance(items, FalseNode):
            return ArrayNode(allows_additional=False)
        if isinstance(items, TrueNode):
            return ArrayNode()
        return ArrayNode(additional=items) if has_prefix else ArrayNode(items=items)

    def load_additional_items(self, schema: _Schema, keyword: str) -> SchemaNode | None:
        if not isinstance(schema.fields.get("items"), list):
            return None
        additional = self.load_child(schema, schema.fields[keyword], keyword)
        if isinstance(additional, FalseNode):
            return ArrayNode(allows_additional=False)
        return ArrayNode(additional=None if isinstance(additional, TrueNode) else additional)

    def load_prefix_items(self, schema: _Schema, keyword: str) -> SchemaNode:
        return ArrayNode(prefix_items=self.load_array(schema, keyword))

    def load_contains(self, schema: _Schema, keyword: str) -> SchemaNode:
        self.load_keyword(schema, keyword)
        minimum = get_optional_number(schema, "minContains")
        return ArrayNode(
            min_contains=1 if minimum is None else minimum, max_contains=get_optional_number(schema, "maxContains")
        )

    def load_object_keyword(self, schema: _Schema, keyword: str) -> SchemaNode:
        count = schema.get_count(keyword)
        is_minimum = keyword == "minProperties"
        return ObjectTypeNode(min_properties=count) if is_minimum else ObjectTypeNode(max_properties=count)

    def load_required(self, schema: _Schema, keyword: str) -> SchemaNode:
        return ObjectTypeNode(required=frozenset(schema.get_strings(keyword)))

    def load_additional_properties(self, schema: _Schema, keyword: str) -> SchemaNode:
        additional = self.load_child(schema, schema.fields[keyword], keyword)
        if isinstance(additional, FalseNode):
            return ObjectTypeNode(allows_additional=False)
        return ObjectTypeNode(additional=None if isinstance(additional, TrueNode) else additional)

    def load_dependent_required(self, schema: _Schema, keyword: str) -> SchemaNode:
        dependencies = {}
        for key, value in schema.get_object(keyword).items():
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise schema.fail(keyword, "an object of arrays of strings")
            if value:
                dependencies[key] = frozenset(value)
        return ObjectTypeNode(required_dependencies=dependencies)

    def load_dependent_schemas(self, schema: _Schema, keyword: str) -> SchemaNode:
        return ObjectTypeNode(schema_dependencies=self.load_map(schema, keyword))

    def load_property_names(self, schema: _Schema, keyword: str) -> SchemaNode:
        self.load_keyword(schema, keyword)
        return ObjectTypeNode()

    def load_reference_keyword(self, schema: _Schema, keyword: str) -> SchemaNode:
        return self.load_reference(schema, keyword)


_MODERN_LOADERS: Final[Mapping[str, Callable[[_ModernLoader, _Schema, str], SchemaNode | None]]] = {
    "$ref": _ModernLoader.load_reference_keyword,
    "$dynamicRef": _ModernLoader.load_reference_keyword,
    "type": _ModernLoader.load_type,
    "enum": _ModernLoader.load_enum_keyword,
    "const": _ModernLoader.load_const,
    "not": _ModernLoader.load_not,
    "if": _ModernLoader.load_conditional,
    **dict.fromkeys(_CRITERIA, _ModernLoader.load_combination),
    **dict.fromkeys(("minLength", "maxLength", "pattern"), _ModernLoader.load_string_keyword),
    **dict.fromkeys(_NUMBER_KEYWORDS, _ModernLoader.load_number_keyword),
    **dict.fromkeys(("minItems", "maxItems", "uniqueItems"), _ModernLoader.load_array_keyword),
    "items": _ModernLoader.load_items,
    "additionalItems": _ModernLoader.load_additional_items,
    "prefixItems": _ModernLoader.load_prefix_items,
    "contains": _ModernLoader.load_contains,
    **dict.fromkeys(("minProperties", "maxProperties"), _ModernLoader.load_object_keyword),
    "required": _ModernLoader.load_required,
    "additionalProperties": _ModernLoader.load_additional_properties,
    "dependentRequired": _ModernLoader.load_dependent_required,
    "dependentSchemas": _ModernLoader.load_dependent_schemas,
    "propertyNames": _ModernLoader.load_property_names,
}

_MERGEABLE: Final = (ArrayNode, NumberNode, ObjectTypeNode, StringNode)


def _join(product: SchemaNode, node: SchemaNode) -> SchemaNode:
    """Return a node that applies two nodes of the same schema together."""
    if type(product) is type(node) and isinstance(product, _MERGEABLE):
        return _merge(product, node)
    if _contains_type(product, node):
        return CombinedNode(
            criterion=Criterion.ANY, subschemas=_accumulate([*_get_subschemas(product), node]), is_implicit=True
        )
    if _contains_type(node, product):
        return CombinedNode(
            criterion=Criterion.ANY, subschemas=_accumulate([*_get_subschemas(node), product]), is_implicit=True
        )
    return CombinedNode(
        criterion=Criterion.ALL, subschemas=_accumulate([*_flatten(product), *_flatten(node)]), is_implicit=True
    )


def _contains_type(types: SchemaNode, node: SchemaNode) -> bool:
    """Return whether a node is a list of types, of which one is the other node's."""
    return (
        isinstance(types, CombinedNode)
        and types.is_implicit
        and types.criterion is Criterion.ANY
        and any(type(each) is type(node) for each in types.subschemas)
    )


def _get_subschemas(node: SchemaNode) -> list[SchemaNode]:
    assert isinstance(node, CombinedNode)
    return node.subschemas


def _flatten(node: SchemaNode) -> list[SchemaNode]:
    is_implicit = isinstance(node, CombinedNode) and node.is_implicit and node.criterion is Criterion.ALL
    return _get_subschemas(node) if is_implicit else [node]


def _accumulate(nodes: list[SchemaNode]) -> list[SchemaNode]:
    """Merge the nodes of the same type."""
    merged: list[SchemaNode] = []
    for node in nodes:
        found = next((index for index, each in enumerate(merged) if type(each) is type(node)), None)
        if found is None or not isinstance(node, _MERGEABLE):
            merged.append(node)
        else:
            merged[found] = _merge(merged[found], node)
    return merged


def _merge(first: SchemaNode, second: SchemaNode) -> SchemaNode:
    """Merge two nodes of the same type. Where both have an attribute, the second one's value counts."""
    blank = type(first)()
    merged = type(first)()
    for name in _get_attributes(type(first)):
        one, other, initial = getattr(first, name), getattr(second, name), getattr(blank, name)
        if isinstance(initial, dict):
            value: Any = {**one, **other}
        elif isinstance(initial, list):
            value = [*one, *other]
        elif isinstance(initial, frozenset):
            value = one | other
        else:
            value = one if other is initial or other == initial else other
        setattr(merged, name, value)
    return merged


def _get_attributes(node_type: type[SchemaNode]) -> list[str]:
    return [name for each in reversed(node_type.__mro__) for name in getattr(each, "__slots__", ())]


def create_type_node(schema: _Schema, name: str) -> SchemaNode:
    """Create the node of a type, without other keywords."""
    match name:
        case "string":
            return StringNode()
        case "integer":
            return NumberNode(is_integer=True)
        case "number":
            return NumberNode()
        case "boolean":
            return BooleanNode()
        case "null":
            return NullNode()
        case "array":
            return ArrayNode()
        case "object":
            return ObjectTypeNode()
    raise InvalidSchemaError(f"{format_pointer((*schema.path, 'type'))}: unknown type: {name!r}")


def get_multiple_of(schema: _Schema) -> int | Decimal | None:
    """Return the value of `multipleOf`."""
    value = schema.get_number("multipleOf")
    if value == 0:
        raise InvalidSchemaError(f"{format_pointer((*schema.path, 'multipleOf'))}: must not be 0")
    return value


def get_optional_number(schema: _Schema, keyword: str) -> int | Decimal | None:
    """Return the value of a keyword, or None if it is not a number."""
    value = schema.fields.get(keyword)
    return value if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


def format_pointer(path: tuple[Any, ...]) -> str:
    """Return a JSON pointer such as `#/properties/name`."""
    return "#/" + "/".join(map(str, path)) if not path or not str(path[0]).startswith("#") else "/".join(map(str, path))
