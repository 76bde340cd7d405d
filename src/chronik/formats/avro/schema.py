"""The model of Avro schemas, and their parser.

The parser accepts and rejects the same schemas as Apache Avro's Java library, version 1.12, configured as in
Confluent's Schema Registry. The JSON may contain comments, a name may be used before its definition, and a type may be
defined again if the definitions are equal. All costs are bounded, because clients send the schemas.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from typing import Any, Final

from chronik.errors import ChronikError

TEXT_LENGTH_MAX: Final = 1024 * 1024
"""Maximum characters of a schema, and of all its references together."""

DEPTH_MAX: Final = 100
"""Maximum nesting of types, and of JSON values in a schema. Java's parser reads up to 1,000 levels of JSON, which is
about 300 levels of records."""

NODES_MAX: Final = 20_000
"""Maximum types, fields, aliases and enum symbols of a schema and its references. Parsing takes about 10 µs each."""

NAME_LENGTH_MAX: Final = 1024
"""Maximum characters of a name with its namespace. All names in a record have its namespace, unless they have their
own: together, they may be much longer than the text."""

STEPS_MAX: Final = 100_000
"""Maximum steps to validate the default values of a schema, and to compare types that are defined again. Default
values of nested records may refer to each other, so that the number of steps may be exponential."""

FIXED_SIZE_MAX: Final = 2**31 - 9
"""Maximum size of a fixed type: Java's maximum array size."""

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1


class AvroSchemaError(ChronikError):
    """A schema is not valid Avro, or exceeds a limit."""


class Kind(StrEnum):
    """The kind of a type, by its name in schemas."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"
    ARRAY = "array"
    MAP = "map"
    UNION = "union"
    RECORD = "record"
    ENUM = "enum"
    FIXED = "fixed"


PRIMITIVES: Final = {str(kind): kind for kind in list(Kind)[: list(Kind).index(Kind.ARRAY)]}
KIND_NAMES: Final = frozenset(map(str, Kind))

JsonObject = dict[str, Any]


class Type:
    """A type: an instance of a subclass, or of this class if the type is primitive. Types are compared by identity."""

    __slots__ = ("kind", "props")

    def __init__(self, kind: Kind, props: JsonObject) -> None:
        self.kind = kind
        self.props = props
        """The attributes that Avro does not define, and those of logical types."""

    @property
    def full_name(self) -> str:
        """The full name of a named type, otherwise the name of the kind."""
        return str(self.kind)

    def children(self) -> Iterable[Type]:
        """Return the types that this type consists of."""
        return ()

    def replace_children(self, replace: Callable[[Type], Type]) -> None:
        """Replace each type that this type consists of."""


class Array(Type):
    __slots__ = ("items",)

    def __init__(self, items: Type, props: JsonObject) -> None:
        super().__init__(Kind.ARRAY, props)
        self.items = items

    def children(self) -> Iterable[Type]:
        return (self.items,)

    def replace_children(self, replace: Callable[[Type], Type]) -> None:
        self.items = replace(self.items)


class Map(Type):
    __slots__ = ("values",)

    def __init__(self, values: Type, props: JsonObject) -> None:
        super().__init__(Kind.MAP, props)
        self.values = values

    def children(self) -> Iterable[Type]:
        return (self.values,)

    def replace_children(self, replace: Callable[[Type], Type]) -> None:
        self.values = replace(self.values)


class Union(Type):
    __slots__ = ("branches",)

    def __init__(self, branches: list[Type]) -> None:
        super().__init__(Kind.UNION, {})
        self.branches = branches

    def children(self) -> Iterable[Type]:
        return self.branches

    def replace_children(self, replace: Callable[[Type], Type]) -> None:
        self.branches = list(map(replace, self.branches))


class Name:
    """The name of a named type, or one of its aliases."""

    __slots__ = ("full", "namespace", "simple")

    def __init__(self, name: str, namespace: str | None, check: Callable[[str], None]) -> None:
        """Split a name. `namespace` applies to names without a dot.

        Raises:
            AvroSchemaError: The part after the last dot is invalid, or the name is too long.
        """
        prefix, dot, simple = name.rpartition(".")
        self.simple = simple
        self.namespace = (prefix if dot else namespace) or None
        self.full = _qualify(simple, self.namespace)
        check(simple)

    def qualify(self, namespace: str | None) -> str:
        """Return the shortest text that refers to this name within a namespace, as Avro's Java library writes it."""
        is_short = self.namespace is not None and self.namespace == namespace and self.simple not in KIND_NAMES
        return self.simple if is_short else self.full


class NamedType(Type):
    """A record, enum or fixed type."""

    __slots__ = ("aliases", "doc", "name")

    def __init__(self, kind: Kind, name: Name, doc: str | None) -> None:
        super().__init__(kind, {})
        self.name = name
        self.doc = doc
        self.aliases: dict[str, Name] = {}
        """The aliases by full name."""

    @property
    def full_name(self) -> str:
        return self.name.full

    @property
    def alias_names(self) -> list[str]:
        """The full names of the aliases. In a type with a namespace, those of no namespace start with a dot."""
        if self.name.namespace is None:
            return list(self.aliases)
        return [alias.full if alias.namespace else f".{alias.simple}" for alias in self.aliases.values()]


class _Missing:
    """The absence of a default value."""


MISSING: Final = _Missing()


class AvroField:
    """A field of a record."""

    __slots__ = ("aliases", "default", "doc", "name", "order", "props", "type")

    def __init__(self, name: str, type_: Type) -> None:
        self.name = name
        self.type = type_
        self.doc: str | None = None
        self.default: Any = MISSING
        """The default value in JSON."""
        self.order = "ascending"
        self.aliases: list[str] = []
        self.props: JsonObject = {}

    @property
    def has_default(self) -> bool:
        """Whether the field has a default value."""
        return self.default is not MISSING


class AvroRecord(NamedType):
    __slots__ = ("by_name", "fields", "is_error")

    def __init__(self, name: Name, doc: str | None, *, is_error: bool) -> None:
        super().__init__(Kind.RECORD, name, doc)
        self.is_error = is_error
        self.fields: list[AvroField] = []
        self.by_name: dict[str, AvroField] = {}

    def children(self) -> Iterable[Type]:
        return (field.type for field in self.fields)

    def replace_children(self, replace: Callable[[Type], Type]) -> None:
        for field in self.fields:
            field.type = replace(field.type)


class Enum(NamedType):
    __slots__ = ("default", "symbols")

    def __init__(self, name: Name, doc: str | None, symbols: list[str], default: str | None) -> None:
        super().__init__(Kind.ENUM, name, doc)
        self.symbols = symbols
        self.default = default


class Fixed(NamedType):
    __slots__ = ("size",)

    def __init__(self, name: Name, doc: str | None, size: int) -> None:
        super().__init__(Kind.FIXED, name, doc)
        self.size = size


class Unresolved(Type):
    """A reference to a type that is defined later. The parser replaces it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(Kind.RECORD, {})
        self.name = name

    @property
    def full_name(self) -> str:
        return f"<{id(self)}>"


def parse_schema(text: str, references: Iterable[str] = (), *, is_new: bool = True) -> tuple[Type, list[Type]]:
    """Parse a schema and the schemas that it refers to.

    Args:
        text: The schema in JSON.
        references: The texts of the referenced schemas, each before the schemas that refer to it.
        is_new: Whether names must consist of ASCII letters, digits and underscores, and default values must be valid.
            Schemas that were registered with older versions may violate these rules.

    Returns:
        The schema's type, and the types of the references.

    Raises:
        AvroSchemaError: The schema or a reference is invalid.
    """
    parser = _Parser(is_new=is_new)
    try:
        types = [parser.parse(reference) for reference in references]
        return parser.parse(text), types
    except AvroSchemaError:
        break_cycles(parser.records)
        raise


# Names


def _qualify(name: str, namespace: str | None) -> str:
    """Return the full name of a name without a dot.

    Raises:
        AvroSchemaError: The full name is too long.
    """
    if len(name) + (0 if namespace is None else 1 + len(namespace)) > NAME_LENGTH_MAX:
        raise AvroSchemaError(f"The schema is too complex: a name has more than {NAME_LENGTH_MAX} characters")
    return name if namespace is None else f"{namespace}.{name}"


_STRICT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _check_strict_name(name: str) -> None:
    if _STRICT_NAME.fullmatch(name):
        return
    if not name:
        raise AvroSchemaError("Empty name")
    if not _STRICT_NAME.match(name):
        raise AvroSchemaError(f"Illegal initial character: {name}")
    raise AvroSchemaError(f"Illegal character in: {name}")


def _check_unicode_name(name: str) -> None:
    if not name:
        raise AvroSchemaError("Empty name")
    if not (name[0].isalpha() or name[0] == "_"):
        raise AvroSchemaError(f"Illegal initial character: {name}")
    if not name.replace("_", "a").isalnum():
        raise AvroSchemaError(f"Illegal character in: {name}")


# JSON

_COMMENT_OR_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|/\*.*?(?:\*/|\Z)|//[^\n]*', re.DOTALL)


def _remove_comments(text: str) -> str:
    return _COMMENT_OR_STRING.sub(lambda match: match[0] if match[0].startswith('"') else " ", text)


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not valid JSON")


def _load_json(text: str) -> Any:
    try:
        try:
            return json.loads(text, parse_constant=_reject_constant)
        except json.JSONDecodeError:
            if "/*" not in text and "//" not in text:
                raise
            return json.loads(_remove_comments(text), parse_constant=_reject_constant)
    except RecursionError:
        raise AvroSchemaError(f"The schema is nested more than {DEPTH_MAX} levels deep") from None
    except ValueError as error:
        raise AvroSchemaError(f"The schema is not valid JSON: {error}") from None


QUOTED_LENGTH_MAX: Final = 500
"""Maximum characters of JSON that an error message quotes."""


def _quote(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        text = "…"
    return text if len(text) <= QUOTED_LENGTH_MAX else text[:QUOTED_LENGTH_MAX] + "…"


def _find_text(container: Any, key: str) -> str | None:
    value = container.get(key) if isinstance(container, dict) else None
    return value if isinstance(value, str) else None


def _require_text(container: Any, key: str, error: str) -> str:
    value = _find_text(container, key)
    if value is None:
        raise AvroSchemaError(f"{error}: {_quote(container)}")
    return value


# Parser

_SCHEMA_RESERVED: Final = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
_ENUM_RESERVED: Final = _SCHEMA_RESERVED | {"default"}
_FIELD_RESERVED: Final = frozenset(("default", "doc", "name", "order", "type", "aliases"))


class _Parser:
    """A parser that knows the names of the schemas that it has parsed."""

    def __init__(self, *, is_new: bool) -> None:
        self._is_new = is_new
        self._check_name = _check_strict_name if is_new else _check_unicode_name
        self._named: dict[str, NamedType] = {}
        self._nodes = 0
        self._depth = 0
        self._length = 0
        self._steps = Steps()
        self._containers: list[Type] = []
        """The types that may contain unresolved types, in the order in which they were completed."""
        self._open: set[str] = set()
        """The full names of the records whose fields are being parsed."""

    def parse(self, text: str) -> Type:
        """Parse a schema, which may refer to names of earlier ones."""
        self._length += len(text)
        if self._length > TEXT_LENGTH_MAX:
            raise AvroSchemaError(f"The schema has more than {TEXT_LENGTH_MAX} characters, including its references")
        if not text.strip():
            raise AvroSchemaError("Cannot parse <null> schema")
        self._containers.clear()
        root = self._resolve(self._parse(_load_json(text), None))
        for container in self._containers:
            container.replace_children(self._resolve)
        for container in self._containers:
            if isinstance(container, Union):
                _check_union(container)
        return root

    @property
    def records(self) -> list[AvroRecord]:
        """Return the records that have been parsed."""
        return [each for each in self._named.values() if isinstance(each, AvroRecord)]

    def _count(self, nodes: int = 1) -> None:
        self._nodes += nodes
        if self._nodes > NODES_MAX:
            raise AvroSchemaError(f"The schema has more than {NODES_MAX} types, fields, aliases and enum symbols")

    def _find(self, name: str, namespace: str | None) -> Type:
        if name in PRIMITIVES:
            return Type(PRIMITIVES[name], {})
        full_name = _qualify(name, None if "." in name else namespace)
        return self._named.get(full_name) or self._named.get(name) or Unresolved(full_name)

    def _resolve(self, reference: Type) -> Type:
        if not isinstance(reference, Unresolved):
            return reference
        if reference.name not in self._named:
            raise AvroSchemaError(f"Undefined schema: {reference.name}")
        return self._named[reference.name]

    def _parse(self, schema: Any, namespace: str | None) -> Type:
        self._count()
        if isinstance(schema, str):
            return self._find(schema, namespace)
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise AvroSchemaError(f"The schema is nested more than {DEPTH_MAX} levels deep")
        if isinstance(schema, dict):
            parsed = self._parse_object(schema, namespace)
        elif isinstance(schema, list):
            parsed = Union([self._parse(branch, namespace) for branch in schema])
            self._containers.append(parsed)
        else:
            raise AvroSchemaError(f"Schema not yet supported: {_quote(schema)}")
        self._depth -= 1
        return parsed

    def _parse_object(self, schema: JsonObject, namespace: str | None) -> Type:
        name = _require_text(schema, "type", "No type")
        if name in PRIMITIVES:
            return Type(PRIMITIVES[name], self._read_props(schema, _SCHEMA_RESERVED))
        if name in ("record", "error"):
            return self._parse_record(schema, namespace)
        if name == "enum":
            return self._parse_enum(schema, namespace)
        if name == "fixed":
            return self._parse_fixed(schema, namespace)
        if name == "array":
            if "items" not in schema:
                raise AvroSchemaError(f"Array has no items type: {_quote(schema)}")
            array = Array(self._parse(schema["items"], namespace), self._read_props(schema, _SCHEMA_RESERVED))
            self._containers.append(array)
            return array
        if name == "map":
            if "values" not in schema:
                raise AvroSchemaError(f"Map has no values type: {_quote(schema)}")
            mapped = Map(self._parse(schema["values"], namespace), self._read_props(schema, _SCHEMA_RESERVED))
            self._containers.append(mapped)
            return mapped
        return self._find(name, namespace)

    def _parse_name(self, schema: JsonObject, namespace: str | None) -> Name:
        declared = _find_text(schema, "namespace")
        name = Name(
            _require_text(schema, "name", "No name in schema"),
            namespace if declared is None else declared,
            self._check_name,
        )
        if name.full in PRIMITIVES:
            raise AvroSchemaError(f"Schemas may not be named after primitives: {name.full}")
        return name

    def _parse_record(self, schema: JsonObject, namespace: str | None) -> AvroRecord:
        record = AvroRecord(
            self._parse_name(schema, namespace), _find_text(schema, "doc"), is_error=schema["type"] == "error"
        )
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise AvroSchemaError(f"Record has no fields: {_quote(schema)}")
        self._open.add(record.full_name)
        for definition in fields:
            field = self._parse_field(definition, record.name.namespace)
            if field.name in record.by_name:
                raise AvroSchemaError(f"Duplicate field {field.name} in record {record.full_name}")
            record.fields.append(field)
            record.by_name[field.name] = field
        self._open.discard(record.full_name)
        self._containers.append(record)
        self._define(record, schema, _SCHEMA_RESERVED)
        return record

    def _parse_field(self, definition: Any, namespace: str | None) -> AvroField:
        self._count()
        name = _require_text(definition, "name", "No field name")
        if "type" not in definition:
            raise AvroSchemaError(f"No field type: {_quote(definition)}")
        field = AvroField(name, self._parse(definition["type"], namespace))
        field.doc = _find_text(definition, "doc")
        if "order" in definition:
            order = definition["order"]
            if not isinstance(order, str) or order.lower() not in ("ascending", "descending", "ignore"):
                raise AvroSchemaError(f"Invalid order of field {name}: {_quote(order)}")
            field.order = order.lower()
        if "default" in definition:
            field.default = _read_default(name, definition["default"], field.type)
            _check_depth(field.default)
            if self._is_new:
                self._check_default(field)
        self._check_name(name)
        field.props = self._read_props(definition, _FIELD_RESERVED)
        field.aliases = self._read_aliases(definition)
        return field

    def _parse_enum(self, schema: JsonObject, namespace: str | None) -> Enum:
        name = self._parse_name(schema, namespace)
        symbols = schema.get("symbols")
        if not isinstance(symbols, list):
            raise AvroSchemaError(f"Enum has no symbols: {_quote(schema)}")
        self._count(len(symbols))
        seen = set()
        for symbol in symbols:
            if not isinstance(symbol, str):
                raise AvroSchemaError("Null name")
            self._check_name(symbol)
            if symbol in seen:
                raise AvroSchemaError(f"Duplicate enum symbol: {symbol}")
            seen.add(symbol)
        default = _find_text(schema, "default")
        if default is not None and default not in seen:
            raise AvroSchemaError(f"The Enum Default: {default} is not in the enum symbol set: {_quote(symbols)}")
        enum = Enum(name, _find_text(schema, "doc"), symbols, default)
        self._define(enum, schema, _ENUM_RESERVED)
        return enum

    def _parse_fixed(self, schema: JsonObject, namespace: str | None) -> Fixed:
        name = self._parse_name(schema, namespace)
        size = schema.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not INT_MIN <= size <= INT_MAX:
            raise AvroSchemaError(f"Invalid or no size: {_quote(schema)}")
        if size < 0:
            raise AvroSchemaError(f"Malformed data. Length is negative: {size}")
        if size > FIXED_SIZE_MAX:
            raise AvroSchemaError(f"Cannot read arrays longer than {FIXED_SIZE_MAX} bytes in Java")
        fixed = Fixed(name, _find_text(schema, "doc"), size)
        self._define(fixed, schema, _SCHEMA_RESERVED)
        return fixed

    def _define(self, named: NamedType, schema: JsonObject, reserved: frozenset[str]) -> None:
        named.props = self._read_props(schema, reserved)
        for alias in self._read_aliases(schema):
            name = Name(alias, named.name.namespace, self._check_name)
            named.aliases[name.full] = name
        if self._is_new:
            for part in (named.name.namespace or "_").split("."):
                try:
                    self._check_name(part)
                except AvroSchemaError as error:
                    raise AvroSchemaError(f'Namespace part "{part}" is invalid: {error}') from None
        known = self._named.setdefault(named.full_name, named)
        if known is not named and not _are_equal(known, named, self._steps):
            raise AvroSchemaError(f"Can't redefine: {named.full_name}")

    def _read_aliases(self, definition: JsonObject) -> list[str]:
        aliases = _read_aliases(definition)
        self._count(len(aliases))
        return aliases

    def _read_props(self, definition: JsonObject, reserved: frozenset[str]) -> JsonObject:
        props = {key: value for key, value in definition.items() if key not in reserved}
        for value in props.values():
            _check_depth(value)
        return props

    def _check_default(self, field: AvroField) -> None:
        """Check a default value. As in Java's parser, its type may contain types whose fields are not known yet."""
        if not is_valid_default(field.type, field.default, self._steps, open_names=self._open):
            name = field.type.name if isinstance(field.type, Unresolved) else field.type.full_name
            raise AvroSchemaError(f"Invalid default for field {field.name}: {_quote(field.default)} not a {name}")


def _read_aliases(definition: JsonObject) -> list[str]:
    aliases = definition.get("aliases", [])
    if not isinstance(aliases, list):
        raise AvroSchemaError(f"aliases not an array: {_quote(definition)}")
    for alias in aliases:
        if not isinstance(alias, str):
            raise AvroSchemaError(f"alias not a string: {_quote(alias)}")
    return list(dict.fromkeys(aliases))


def _read_default(name: str, default: Any, type_: Type) -> Any:
    if isinstance(default, str) and type_.kind in (Kind.FLOAT, Kind.DOUBLE):
        text = default.strip()
        if text.lstrip("+-").isalpha() and text.lstrip("+-") not in ("NaN", "Infinity"):
            text = ""  # Python has other names for them
        try:
            return float(text.replace("_", "?"))
        except ValueError:
            raise AvroSchemaError(f"Invalid default for field {name}: {_quote(default)} is not a number") from None
    return default


def _check_depth(value: Any, depth: int = 0) -> None:
    if depth > DEPTH_MAX:
        raise AvroSchemaError(f"The schema contains a value that is nested more than {DEPTH_MAX} levels deep")
    if isinstance(value, dict):
        for element in value.values():
            _check_depth(element, depth + 1)
    elif isinstance(value, list):
        for element in value:
            _check_depth(element, depth + 1)


def _check_union(union: Union) -> None:
    names = set()
    for branch in union.branches:
        if branch.kind is Kind.UNION:
            raise AvroSchemaError("Nested union")
        if branch.full_name in names:
            raise AvroSchemaError(f"Duplicate in union:{branch.full_name}")
        names.add(branch.full_name)


class Steps:
    """A budget of steps."""

    def __init__(self, steps_max: int = STEPS_MAX) -> None:
        self._left = steps_max

    def take(self, steps: int = 1) -> None:
        """Take steps from the budget.

        Raises:
            AvroSchemaError: The budget is exhausted.
        """
        self._left -= steps
        if self._left < 0:
            raise AvroSchemaError("The schema is too complex")


def is_valid_default(type_: Type, value: Any, steps: Steps, depth: int = 0, open_names: Collection[str] = ()) -> bool:
    """Return whether JSON is a valid default value of a type.

    Types that are defined later accept any object. `open_names` are records whose fields are being parsed.

    Raises:
        AvroSchemaError: The budget of steps is exhausted, the default values of records are nested too deeply, or the
            value is one of a record in `open_names`.
    """
    steps.take()
    if depth > 2 * DEPTH_MAX:
        raise AvroSchemaError("The schema is too complex: the default values of its records are nested too deeply")
    if isinstance(type_, Unresolved):
        if isinstance(value, dict) and type_.name in open_names:
            raise AvroSchemaError(f"Invalid default {_quote(value)}: the fields of {type_.name} are not known yet")
        return isinstance(value, dict)
    if isinstance(type_, Union):
        return any(is_valid_default(branch, value, steps, depth + 1, open_names) for branch in type_.branches)
    if isinstance(type_, Array):
        return isinstance(value, list) and all(
            is_valid_default(type_.items, item, steps, depth + 1, open_names) for item in value
        )
    if isinstance(type_, Map):
        return isinstance(value, dict) and all(
            is_valid_default(type_.values, item, steps, depth + 1, open_names) for item in value.values()
        )
    if isinstance(type_, AvroRecord):
        if not isinstance(value, dict):
            return False
        for field in type_.fields:
            element = value.get(field.name, field.default)
            if element is MISSING or not is_valid_default(field.type, element, steps, depth + 1, open_names):
                return False
        return True
    return _is_valid_primitive(type_.kind, value)


def _is_valid_primitive(kind: Kind, value: Any) -> bool:
    match kind:
        case Kind.NULL:
            return value is None
        case Kind.BOOLEAN:
            return isinstance(value, bool)
        case Kind.INT:
            return isinstance(value, int) and not isinstance(value, bool) and INT_MIN <= value <= INT_MAX
        case Kind.LONG:
            return isinstance(value, int) and not isinstance(value, bool) and LONG_MIN <= value <= LONG_MAX
        case Kind.FLOAT | Kind.DOUBLE:
            return isinstance(value, int | float) and not isinstance(value, bool)
        case _:
            return isinstance(value, str)


def _are_equal(first: Type, second: Type, steps: Steps, seen: set[tuple[int, int]] | None = None) -> bool:
    """Return whether types are equal except for documentation and aliases, as Java's `Schema.equals` does."""
    steps.take()
    if first is second:
        return True
    if (
        first.kind is not second.kind
        or isinstance(first, Unresolved)
        or isinstance(second, Unresolved)
        or not _are_equal_json(first.props, second.props)
        or first.full_name != second.full_name
    ):
        return False
    seen = set() if seen is None else seen
    if (id(first), id(second)) in seen:
        return True
    seen.add((id(first), id(second)))
    if isinstance(first, Enum) and isinstance(second, Enum):
        return first.symbols == second.symbols
    if isinstance(first, Fixed) and isinstance(second, Fixed):
        return first.size == second.size
    if isinstance(first, AvroRecord) and isinstance(second, AvroRecord):
        return len(first.fields) == len(second.fields) and all(
            one.name == other.name
            and one.order == other.order
            and one.has_default == other.has_default
            and (not one.has_default or _are_equal_json(one.default, other.default))
            and _are_equal_json(one.props, other.props)
            and _are_equal(one.type, other.type, steps, seen)
            for one, other in zip(first.fields, second.fields, strict=True)
        )
    children, others = list(first.children()), list(second.children())
    return len(children) == len(others) and all(
        _are_equal(child, other, steps, seen) for child, other in zip(children, others, strict=True)
    )


def _are_equal_json(first: Any, second: Any) -> bool:
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_are_equal_json(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(_are_equal_json, first, second))
    if isinstance(first, float) and math.isnan(first):
        return math.isnan(second)
    return bool(first == second)


# Logical types


class LogicalType(StrEnum):
    """A logical type, by its name in schemas."""

    DECIMAL = "decimal"
    BIG_DECIMAL = "big-decimal"
    UUID = "uuid"
    DURATION = "duration"
    DATE = "date"
    TIME_MILLIS = "time-millis"
    TIME_MICROS = "time-micros"
    TIMESTAMP_MILLIS = "timestamp-millis"
    TIMESTAMP_MICROS = "timestamp-micros"
    TIMESTAMP_NANOS = "timestamp-nanos"
    LOCAL_TIMESTAMP_MILLIS = "local-timestamp-millis"
    LOCAL_TIMESTAMP_MICROS = "local-timestamp-micros"
    LOCAL_TIMESTAMP_NANOS = "local-timestamp-nanos"


_LOGICAL_KINDS: Final = {
    LogicalType.BIG_DECIMAL: Kind.BYTES,
    LogicalType.DATE: Kind.INT,
    LogicalType.TIME_MILLIS: Kind.INT,
}
UUID_BYTES: Final = 16
DURATION_BYTES: Final = 12


def find_logical_type(type_: Type) -> LogicalType | None:
    """Return a type's logical type, or None if it has none, or an unknown or invalid one, which Avro ignores."""
    name = type_.props.get("logicalType")
    if not isinstance(name, str) or name not in LogicalType.__members__.values():
        return None
    logical_type = LogicalType(name)
    if logical_type is LogicalType.DECIMAL:
        is_valid = _is_valid_decimal(type_)
    elif logical_type is LogicalType.UUID:
        is_valid = type_.kind is Kind.STRING or (isinstance(type_, Fixed) and type_.size == UUID_BYTES)
    elif logical_type is LogicalType.DURATION:
        is_valid = isinstance(type_, Fixed) and type_.size == DURATION_BYTES
    else:
        is_valid = type_.kind is _LOGICAL_KINDS.get(logical_type, Kind.LONG)
    return logical_type if is_valid else None


def _is_valid_decimal(type_: Type) -> bool:
    if type_.kind not in (Kind.BYTES, Kind.FIXED):
        return False
    precision, scale = read_decimal(type_)
    for number in (precision, scale):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= INT_MAX:
            return False
    if isinstance(type_, Fixed) and precision > math.floor(math.log10(2) * (8 * type_.size - 1)):
        return False
    return precision > 0 and scale <= precision


def read_decimal(type_: Type) -> tuple[int, int]:
    """Return the precision and the scale of a type with the logical type decimal."""
    return type_.props.get("precision"), type_.props.get("scale", 0)  # type: ignore[return-value]


def break_cycles(records: Iterable[AvroRecord]) -> None:
    """Remove the fields of the records of a schema that is not used any more.

    Recursive types are reference cycles. Python's garbage collector does not find those that a node has frozen while
    they were in use: see `chronik.node.memory_tuning`.
    """
    for record in records:
        record.fields.clear()
        record.by_name.clear()


def iter_types(root: Type) -> Iterator[Type]:
    """Iterate over all types that a type consists of, each once, starting with the type itself."""
    seen = {id(root)}
    waiting = [root]
    while waiting:
        current = waiting.pop()
        yield current
        for child in current.children():
            if id(child) not in seen:
                seen.add(id(child))
                waiting.append(child)
