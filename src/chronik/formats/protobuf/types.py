"""Resolved message and enum types: what is needed to read and write values, without the syntax of files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from chronik.formats.codec import DECIMAL_PRECISION_MAX
from chronik.formats.protobuf.names import NameIndex, TypeInfo, is_map_entry, join_names
from chronik.formats.protobuf.syntax import (
    FIELD_NUMBER_MAX,
    SCALAR_TYPES,
    Message,
    Oneof,
    Option,
    OptionValue,
    ProtoEnum,
    ProtoField,
    ProtoSyntaxError,
    Symbol,
    iter_fields,
    split_map_type,
)

MESSAGE, GROUP, ENUM = "message", "group", "enum"
"""The kinds of fields that are no scalars. The kind of a scalar is the name of its type, such as `int32`."""

_UNPACKED_KINDS: Final = frozenset(("string", "bytes", MESSAGE, GROUP))

_NUMBER_CHARACTERS_MAX: Final = 400

_EMPTY: Final[Mapping[str, Any]] = {"string": "", "bytes": b"", "bool": False, "float": 0.0, "double": 0.0}


class EnumType:
    """An enum type."""

    def __init__(self, full_name: str, declaration: ProtoEnum, *, is_closed: bool) -> None:
        self.full_name = full_name
        self.is_closed = is_closed
        """Whether unknown numbers are treated as unknown fields, as in proto2."""
        self.names: dict[int, str] = {}
        self.numbers: dict[str, int] = {}
        for value in declaration.values:
            self.names.setdefault(value.number, value.name)
            self.numbers[value.name] = value.number
        self.first_number = declaration.values[0].number


class FieldType:
    """A field of a message type."""

    def __init__(self, field: ProtoField, kind: str, oneof: str | None, *, is_repeated: bool, is_proto3: bool) -> None:
        self.name = field.name
        self.number = field.number
        self.kind = kind
        self.oneof = oneof
        self.is_repeated = is_repeated
        self.is_required = field.label == "required"
        self.is_map = False
        self.is_proto3 = is_proto3
        self.message: MessageType | None = None
        self.enum: EnumType | None = None
        self.has_presence = not is_repeated and (
            not is_proto3 or oneof is not None or field.label is not None or kind in (MESSAGE, GROUP)
        )
        """Whether readers can distinguish an absent field from one with the default value."""
        is_packable = is_repeated and kind not in _UNPACKED_KINDS
        packed = next((option.value for option in field.options if option.name == "packed"), None)
        self.is_packed = is_packable and (is_proto3 if packed is None else packed == Symbol("true", is_number=False))
        self._default = field.default
        self._options = field.options

    @property
    def has_explicit_default(self) -> bool:
        return self._default is not None

    @cached_property
    def precision_and_scale(self) -> tuple[int, int] | None:
        """The precision and scale that Confluent's option declares for decimals, or None without a valid one."""
        params: dict[str, str] = {}
        for option in self._options:
            if option.is_custom and option.name.removeprefix(".") == "confluent.field_meta":
                value = option.value
                if isinstance(value, Option):  # (confluent.field_meta).params = { … }
                    value = {value.name: value.value}
                entries = value.get("params", []) if isinstance(value, dict) else []
                for entry in entries if isinstance(entries, list) else [entries]:
                    if isinstance(entry, dict):
                        params[str(entry.get("key"))] = str(entry.get("value"))
        texts = params.get("precision", ""), params.get("scale", "0")
        if not all(text.isascii() and text.isdigit() and len(text) < 4 for text in texts):
            return None
        precision, scale = int(texts[0]), int(texts[1])
        return (precision, scale) if 0 <= scale <= precision <= DECIMAL_PRECISION_MAX and precision else None

    @cached_property
    def default(self) -> Any:
        """The value that readers see if the field is absent: a number for an enum, None for a message."""
        if self.message is not None:
            return None
        text = self._default
        if self.enum is not None:
            name = text.text if isinstance(text, Symbol) else text
            return self.enum.numbers.get(str(name), self.enum.first_number)
        if text is None:
            return _EMPTY.get(self.kind, 0)
        try:
            return parse_default(self.kind, text)
        except ValueError:
            raise ProtoSyntaxError(f"the default value of field {self.name} is not of type {self.kind}") from None


class MessageType:
    """A message type."""

    def __init__(self, full_name: str) -> None:
        self.full_name = full_name
        self.fields: list[FieldType] = []
        """The fields in the order of their declaration; those of oneofs are last."""
        self.by_number: dict[int, FieldType] = {}
        self.by_name: dict[str, FieldType] = {}
        self.oneofs: dict[str, list[FieldType]] = {}
        self.required: list[FieldType] = []

    def add(self, field: FieldType) -> None:
        """Add a field.

        Raises:
            ProtoSyntaxError: The number is not valid, or another field has the same number or name.
        """
        if field.number in self.by_number or field.name in self.by_name or not 0 < field.number <= FIELD_NUMBER_MAX:
            raise ProtoSyntaxError(f"message {self.full_name} has an invalid field {field.name} = {field.number}")
        self.fields.append(field)
        self.by_number[field.number] = field
        self.by_name[field.name] = field
        if field.oneof is not None:
            self.oneofs.setdefault(field.oneof, []).append(field)
        if field.is_required:
            self.required.append(field)


def break_cycles(root: MessageType) -> None:
    """Remove the fields of a message type that is not used any more, and of all types that it uses.

    Recursive types are reference cycles. Python's garbage collector does not find those that a node has frozen while
    they were in use: see `chronik.node.memory_tuning`.
    """
    pending = [root]
    while pending:
        message = pending.pop()
        pending += (field.message for field in message.fields if field.message is not None)
        for collection in (message.fields, message.by_number, message.by_name, message.oneofs, message.required):
            collection.clear()


class TypeResolver:
    """Resolves the types of schemas, each once."""

    def __init__(self, names: NameIndex) -> None:
        self.names = names
        self._messages: dict[str, MessageType] = {}
        self._enums: dict[str, EnumType] = {}

    def find_message(self, full_name: str) -> MessageType:
        """Return the message type with a full name, and resolve all types that it uses.

        Raises:
            ProtoSyntaxError: The type or one that it uses is not declared.
        """
        info = self.names.find_type("." + full_name, "")
        if info is None or not isinstance(info.declaration, Message):
            raise ProtoSyntaxError(f"Could not resolve type: {full_name}")
        return self._resolve_message(info)

    def _resolve_message(self, root: TypeInfo) -> MessageType:
        # Iterative, because types can refer to each other in chains of any length.
        pending: list[TypeInfo] = []
        found = self._get_message(root, pending)
        while pending:
            info = pending.pop()
            message = self._messages[info.full_name]
            assert isinstance(info.declaration, Message)
            for field, oneof in iter_fields(info.declaration):
                message.add(self._resolve_field(field, oneof, info, pending))
        return found

    def _get_message(self, info: TypeInfo, pending: list[TypeInfo]) -> MessageType:
        found = self._messages.get(info.full_name)
        if found is None:
            found = self._messages[info.full_name] = MessageType(info.full_name)
            pending.append(info)
        return found

    def _resolve_field(
        self, field: ProtoField, oneof: Oneof | None, owner: TypeInfo, pending: list[TypeInfo]
    ) -> FieldType:
        is_proto3 = self.names.files[owner.path].is_proto3
        oneof_name = None if oneof is None else oneof.name
        map_types = split_map_type(field.type)
        if map_types is not None:
            resolved = FieldType(field, MESSAGE, None, is_repeated=True, is_proto3=is_proto3)
            resolved.is_map = True
            entry = MessageType(join_names(owner.full_name, build_entry_name(field.name)))
            for number, (name, type_name) in enumerate(zip(("key", "value"), map_types, strict=True), 1):
                part = ProtoField(None, type_name, name, number)
                # Entries have defaults even in proto2: an absent key or value is the default of its type.
                entry.add(self._resolve_type(part, None, owner, pending, is_proto3=True))
            value = entry.by_name["value"]
            value.is_proto3 = is_proto3
            resolved.message = entry
            return resolved
        return self._resolve_type(field, oneof_name, owner, pending, is_proto3=is_proto3)

    def _resolve_type(
        self, field: ProtoField, oneof: str | None, owner: TypeInfo, pending: list[TypeInfo], *, is_proto3: bool
    ) -> FieldType:
        is_repeated = field.label == "repeated"
        if field.type in SCALAR_TYPES:
            return FieldType(field, field.type, oneof, is_repeated=is_repeated, is_proto3=is_proto3)
        info = self.names.find_type(field.type, owner.full_name)
        if info is None:
            raise ProtoSyntaxError(f"Could not resolve type: {field.type}")
        if isinstance(info.declaration, ProtoEnum):
            resolved = FieldType(field, ENUM, oneof, is_repeated=is_repeated, is_proto3=is_proto3)
            resolved.enum = self._get_enum(info, info.declaration)
            return resolved
        kind = MESSAGE if field.group is None else GROUP
        resolved = FieldType(field, kind, oneof, is_repeated=is_repeated, is_proto3=is_proto3)
        resolved.message = self._get_message(info, pending)
        resolved.is_map = is_repeated and is_map_entry(info.declaration)
        return resolved

    def _get_enum(self, info: TypeInfo, declaration: ProtoEnum) -> EnumType:
        found = self._enums.get(info.full_name)
        if found is None:
            if not declaration.values:
                raise ProtoSyntaxError(f"enum {info.full_name} has no values")
            is_closed = not self.names.files[info.path].is_proto3
            found = self._enums[info.full_name] = EnumType(info.full_name, declaration, is_closed=is_closed)
        return found


def build_entry_name(field_name: str) -> str:
    """Return the name of the entry type of a map field: `FooBarEntry` for `foo_bar`."""
    parts = re.split("_+", field_name)
    return "".join(part[:1].upper() + part[1:] for part in parts) + "Entry"


_INTEGER_BITS: Final = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (32, True)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (64, True)),
    **dict.fromkeys(("uint32", "fixed32"), (32, False)),
    **dict.fromkeys(("uint64", "fixed64"), (64, False)),
}


def get_integer_size(kind: str) -> tuple[int, bool] | None:
    """Return the bits of an integer type and whether it is signed, or None for other types."""
    return _INTEGER_BITS.get(kind)


def parse_default(kind: str, value: OptionValue) -> Any:
    """Return the value of a scalar type that an option has.

    Raises:
        ValueError: The option is not of the type.
    """
    if kind in ("string", "bytes"):
        if not isinstance(value, str):
            raise ValueError("not a string")
        data = value.encode("utf-8", "surrogateescape")
        return data if kind == "bytes" else data.decode()
    if not isinstance(value, Symbol):
        raise ValueError("not a number")
    text = value.text
    if kind == "bool":
        if text not in ("true", "false"):
            raise ValueError("not a boolean")
        return text == "true"
    if len(text) > _NUMBER_CHARACTERS_MAX:
        raise ValueError("a number is too long")
    if kind in ("float", "double"):
        return float(text.removesuffix("f") if text[-2:-1].isdigit() else text)
    digits = text.removeprefix("-")
    is_octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
    number = int(digits, 16 if digits[:2] in ("0x", "0X") else 8 if is_octal else 10) * (-1 if text[0] == "-" else 1)
    bits, is_signed = _INTEGER_BITS[kind]
    if not (-(1 << bits - 1) <= number < 1 << bits - 1 if is_signed else 0 <= number < 1 << bits):
        raise ValueError("a number is out of range")
    return number
