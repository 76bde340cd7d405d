"""The layout of Protobuf values: for each field of a message type, how a column stores its values."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum, auto
from functools import lru_cache
from typing import Final

from chronik.formats.codec import UnsupportedSchemaError, WriterSchema
from chronik.formats.protobuf.descriptors import parse_descriptor
from chronik.formats.protobuf.names import ROOT, NameIndex, join_names
from chronik.formats.protobuf.syntax import (
    TEXT_LENGTH_MAX,
    Message,
    ProtoFile,
    ProtoSyntaxError,
    iter_types,
    parse_file,
)
from chronik.formats.protobuf.types import ENUM, FieldType, MessageType, TypeResolver

COLUMNS_MAX: Final = 10_000
"""Maximum columns of a table, including nested ones, that a schema may describe. A type that is used several times
counts each time, so that a short schema can describe any number of columns."""

STRUCT_DEPTH_MAX: Final = 32
"""Maximum nesting depth of structs in columns. Messages that are nested more deeply are JSON text."""


class ColumnForm(Enum):
    """The form in which a column stores the values of a field."""

    BOOLEAN = auto()
    INT = auto()
    LONG = auto()
    """A signed number of 64 bits, or an unsigned one of 32 bits."""
    UNSIGNED_LONG = auto()
    FLOAT = auto()
    DOUBLE = auto()
    STRING = auto()
    BYTES = auto()
    ENUM = auto()
    TIMESTAMP = auto()
    DATE = auto()
    TIME = auto()
    DECIMAL = auto()
    WRAPPER = auto()
    """A message that makes its only field nullable, such as `google.protobuf.Int32Value`."""
    STRUCT = auto()
    JSON_TEXT = auto()
    """A message that no column type represents: a `google.protobuf.Struct`, a message within itself, or one without
    fields."""


_SCALAR_FORMS: Final = {
    "bool": ColumnForm.BOOLEAN,
    "bytes": ColumnForm.BYTES,
    "double": ColumnForm.DOUBLE,
    "fixed32": ColumnForm.LONG,
    "fixed64": ColumnForm.UNSIGNED_LONG,
    "float": ColumnForm.FLOAT,
    "int32": ColumnForm.INT,
    "int64": ColumnForm.LONG,
    "sfixed32": ColumnForm.INT,
    "sfixed64": ColumnForm.LONG,
    "sint32": ColumnForm.INT,
    "sint64": ColumnForm.LONG,
    "string": ColumnForm.STRING,
    "uint32": ColumnForm.LONG,
    "uint64": ColumnForm.UNSIGNED_LONG,
    ENUM: ColumnForm.ENUM,
}

_PACKAGE: Final = "google.protobuf."
WRAPPERS: Final = frozenset(
    f"{_PACKAGE}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
STRUCT_TYPE, LIST_TYPE, VALUE_TYPE = f"{_PACKAGE}Struct", f"{_PACKAGE}ListValue", f"{_PACKAGE}Value"
JSON_TYPES: Final = frozenset((STRUCT_TYPE, LIST_TYPE, VALUE_TYPE))
"""Messages that represent JSON values."""

TIMESTAMP_TYPE, DATE_TYPE, TIME_TYPE = f"{_PACKAGE}Timestamp", "google.type.Date", "google.type.TimeOfDay"
DECIMAL_TYPE: Final = "confluent.type.Decimal"
_MESSAGE_FORMS: Final = {
    TIMESTAMP_TYPE: ColumnForm.TIMESTAMP,
    DATE_TYPE: ColumnForm.DATE,
    TIME_TYPE: ColumnForm.TIME,
    **dict.fromkeys(WRAPPERS, ColumnForm.WRAPPER),
    **dict.fromkeys(JSON_TYPES, ColumnForm.JSON_TEXT),
}

_SHAPES: Final = {
    TIMESTAMP_TYPE: {"seconds": (1, "int64"), "nanos": (2, "int32")},
    DATE_TYPE: {"year": (1, "int32"), "month": (2, "int32"), "day": (3, "int32")},
    TIME_TYPE: {name: (number, "int32") for number, name in enumerate(("hours", "minutes", "seconds", "nanos"), 1)},
    DECIMAL_TYPE: {"value": (1, "bytes"), "precision": (2, "uint32"), "scale": (3, "int32")},
}
"""The fields of special types. A schema may contain another type of the same name, which is an ordinary message."""


_ELEMENT_BYTES: Final = {
    ColumnForm.BOOLEAN: 1,
    ColumnForm.LONG: 8,
    ColumnForm.UNSIGNED_LONG: 16,
    ColumnForm.DOUBLE: 8,
    ColumnForm.TIMESTAMP: 8,
    ColumnForm.DECIMAL: 16,
    ColumnForm.TIME: 4 + len("08:30:00.000000001"),
}
"""The bytes that a column takes per value; 4 for other forms. The bytes of strings, which are part of the payload, do
not count, nor do those of enum names and JSON text, which are counted themselves."""

KEY_BYTES: Final = 24
"""The bytes that a column takes per key of a map: the longest number as text, and its position."""


class FieldLayout:
    """How a column stores single values of a field, or the elements of a repeated one."""

    __slots__ = (
        "children",
        "element_bytes",
        "field",
        "form",
        "is_list",
        "is_map",
        "precision_and_scale",
        "size",
        "slot_bytes",
    )

    def __init__(self, field: FieldType, form: ColumnForm, children: tuple[FieldLayout, ...] = ()) -> None:
        self.field = field
        self.form = form
        self.children = children
        """The layouts of the fields of the message."""
        self.is_map = field.is_map
        self.is_list = field.is_repeated and not field.is_map
        self.precision_and_scale = field.precision_and_scale or (0, 0)
        self.size: int = 1 + sum(child.size for child in children)
        """The number of columns, including nested ones. A type that is used several times counts each time."""
        self.element_bytes: int = self._find_element_bytes()
        """The minimum bytes that a column takes per element of a list, entry of a map, or single value."""
        self.slot_bytes: int = 4 if field.is_repeated else self.element_bytes + _find_default_bytes(field)
        """The minimum bytes that a column takes per message with the field, which may be absent."""

    def _find_element_bytes(self) -> int:
        if self.is_map and self.children:
            return KEY_BYTES + self.children[1].slot_bytes
        if self.form in (ColumnForm.STRUCT, ColumnForm.WRAPPER):
            return sum(child.slot_bytes for child in self.children)
        return _ELEMENT_BYTES.get(self.form, 4)


def _find_default_bytes(field: FieldType) -> int:
    """Return the size of the text that a column stores for an absent field."""
    default = field.default
    if field.enum is not None:
        return len(field.enum.names.get(default, ""))
    return len(default) if isinstance(default, str | bytes) else 0


def find_special_form(message: MessageType, field: FieldType | None = None) -> ColumnForm | None:
    """Return the form of a message type with a special meaning, or None for an ordinary one.

    A decimal is special in a field that declares its precision and scale.
    """
    name = message.full_name
    shape = _SHAPES.get(name)
    if shape is not None:
        found = {each.name: (each.number, each.kind) for each in message.fields if not each.is_repeated}
        if found != shape or len(message.fields) != len(shape):
            return None
    if name == DECIMAL_TYPE:
        return ColumnForm.DECIMAL if field is not None and field.precision_and_scale is not None else None
    if name in WRAPPERS and not (
        len(message.fields) == 1
        and message.fields[0].number == 1
        and message.fields[0].message is None
        and not message.fields[0].is_repeated
    ):
        return None
    if name in JSON_TYPES and not is_json_type(message):
        return None
    return _MESSAGE_FORMS.get(name)


def is_json_type(message: MessageType) -> bool:
    """Return whether a type with the name of one that represents JSON values has its fields."""
    expected = {
        STRUCT_TYPE: ("fields",),
        LIST_TYPE: ("values",),
        VALUE_TYPE: ("null_value", "number_value", "string_value", "bool_value", "struct_value", "list_value"),
    }.get(message.full_name)
    if expected is None or tuple(sorted(message.by_name)) != tuple(sorted(expected)):
        return False
    if message.full_name == STRUCT_TYPE:
        field = message.by_name["fields"]
        return field.is_map and _has_type(field.message, "value", VALUE_TYPE)
    if message.full_name == LIST_TYPE:
        return message.by_name["values"].is_repeated and _has_type(message, "values", VALUE_TYPE)
    return (
        message.by_name["number_value"].kind == "double"
        and message.by_name["string_value"].kind == "string"
        and message.by_name["bool_value"].kind == "bool"
        and _has_type(message, "struct_value", STRUCT_TYPE)
        and _has_type(message, "list_value", LIST_TYPE)
        and all(field.oneof == "kind" for field in message.fields)
    )


def _has_type(message: MessageType | None, name: str, type_name: str) -> bool:
    field = None if message is None else message.by_name.get(name)
    return field is not None and field.message is not None and field.message.full_name == type_name


def load_message(schema: WriterSchema, message: str | Sequence[int] = ()) -> tuple[MessageType, tuple[int, ...]]:
    """Return a message type of a schema, and the path to it.

    Args:
        schema: A `.proto` file, or a serialized descriptor in Base64.
        message: The full name of the message type, or its path; by default, the first one.

    Raises:
        UnsupportedSchemaError: The schema is invalid, or it has no such message type.
    """
    names = _index_schema(schema)
    if isinstance(names, str):
        raise UnsupportedSchemaError(names)
    try:
        file = _follow_public_import(names)
        package = (file.package or "").removeprefix(".")
        indexes = _find_indexes(file, package, message) if isinstance(message, str) else tuple(message) or (0,)
        full_name = _find_name(file, package, indexes)
        return TypeResolver(names).find_message(full_name), indexes
    except ProtoSyntaxError as error:
        raise UnsupportedSchemaError(f"invalid Protobuf schema: {error}") from None


# Each of many records may name another message type of the same schema, which takes up to a second to parse.
@lru_cache(maxsize=1)
def _index_schema(schema: WriterSchema) -> NameIndex | str:
    """Parse a schema. Return its types, or the reason why it is not valid."""
    dependencies: dict[str, ProtoFile] = {}
    try:
        for reference in schema.references:
            if reference.name not in dependencies:
                dependencies[reference.name] = parse_schema_file(reference.text)
        return NameIndex(parse_schema_file(schema.text), dependencies)
    except ProtoSyntaxError as error:
        return f"invalid Protobuf schema: {error}"


def parse_schema_file(text: str) -> ProtoFile:
    """Parse a `.proto` file, or a serialized descriptor in Base64.

    Raises:
        ProtoSyntaxError: The text is neither.
    """
    try:
        return parse_file(text)
    except ProtoSyntaxError as error:
        if len(text) > TEXT_LENGTH_MAX:
            raise
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise error from None
    return parse_descriptor(data)


def _follow_public_import(names: NameIndex) -> ProtoFile:
    """Return the file with the types of a schema: the only file that it imports if it only consists of the import."""
    file = names.files[ROOT]
    if file.types or file.imports or file.services or file.extends or len(file.public_imports) != 1:
        return file
    names.add_built_in_files()
    return names.files.get(file.public_imports[0], file)


def _list_messages(types: Sequence[object]) -> list[Message]:
    return [each for each in types if isinstance(each, Message)]


def _find_name(file: ProtoFile, package: str, indexes: Sequence[int]) -> str:
    messages = _list_messages(file.types)
    name = package
    for index in indexes:
        if not 0 <= index < len(messages):
            raise UnsupportedSchemaError(f"the Protobuf schema has no message type with the path {tuple(indexes)}")
        name = join_names(name, messages[index].name)
        messages = _list_messages(list(iter_types(messages[index])))
    return name


def _find_indexes(file: ProtoFile, package: str, full_name: str) -> tuple[int, ...]:
    error = UnsupportedSchemaError(f"the Protobuf schema has no message type {full_name}")
    full_name = full_name.removeprefix(".")
    if package:
        if not full_name.startswith(f"{package}."):
            raise error
        full_name = full_name[len(package) + 1 :]
    indexes: list[int] = []
    messages = _list_messages(file.types)
    for name in full_name.split("."):
        index = next((index for index, each in enumerate(messages) if each.name == name), None)
        if index is None:
            raise error
        indexes.append(index)
        messages = _list_messages(list(iter_types(messages[index])))
    return tuple(indexes)


def plan_layouts(message: MessageType) -> tuple[FieldLayout, ...]:
    """Plan how columns store the fields of a message type.

    Raises:
        UnsupportedSchemaError: The schema describes too many columns.
    """
    return _Planner().plan_fields(message)


class _Planner:
    def __init__(self) -> None:
        self._outer: list[MessageType] = []
        self._columns = 0

    def plan_fields(self, message: MessageType) -> tuple[FieldLayout, ...]:
        self._outer.append(message)
        layouts = tuple(self._plan(field) for field in message.fields)
        self._outer.pop()
        return layouts

    def _plan(self, field: FieldType) -> FieldLayout:
        self._columns += 1
        if self._columns > COLUMNS_MAX:
            raise UnsupportedSchemaError(f"the Protobuf schema describes more than {COLUMNS_MAX} columns")
        message = field.message
        if message is None:
            return FieldLayout(field, _SCALAR_FORMS[field.kind])
        if field.is_map:
            key, value = (message.by_name[name] for name in ("key", "value"))
            inner = self._plan(value)
            return FieldLayout(field, inner.form, (self._plan(key), inner))
        special = find_special_form(message, field)
        if special is ColumnForm.WRAPPER:
            return FieldLayout(field, ColumnForm.WRAPPER, (self._plan(message.fields[0]),))
        if special is not None:
            return FieldLayout(field, special)
        if message in self._outer or not message.fields or len(self._outer) >= STRUCT_DEPTH_MAX:
            return FieldLayout(field, ColumnForm.JSON_TEXT)
        return FieldLayout(field, ColumnForm.STRUCT, self.plan_fields(message))


def to_decimal(data: bytes, scale: int) -> Decimal:
    """Return the value of a `confluent.type.Decimal`."""
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale)
