"""Random Protobuf schemas and payloads, and Google's library as the oracle of their values."""

from __future__ import annotations

import base64
import random
import struct
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from graphlib import TopologicalSorter
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from chronik.formats.codec import format_float, format_single_float
from chronik.formats.protobuf.built_in import built_in_files
from chronik.formats.protobuf.descriptors import build_descriptor
from chronik.formats.protobuf.names import NameIndex
from chronik.formats.protobuf.syntax import ProtoFile, parse_file

SCALARS = (
    *("bool", "bytes", "double", "fixed32", "fixed64", "float", "int32", "int64"),
    *("sfixed32", "sfixed64", "sint32", "sint64", "string", "uint32", "uint64"),
)
KEYS = tuple(name for name in SCALARS if name not in ("bytes", "double", "float"))
WELL_KNOWN = (
    *("google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.Any", "google.protobuf.Empty"),
    *("google.protobuf.FieldMask", "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"),
    *("google.type.Date", "google.type.TimeOfDay"),
    *(f"google.protobuf.{name}Value" for name in ("Int32", "Int64", "UInt32", "UInt64", "Bool", "String", "Bytes")),
    *("google.protobuf.FloatValue", "google.protobuf.DoubleValue"),
)
INTEGERS = (0, 1, -1, 127, 128, 300, 2**14, 2**31 - 1, -(2**31), 2**32 - 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1)


# Schemas


class SchemaGenerator:
    """Generates `.proto` files with the message type `M`."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._is_proto3 = source.random() < 0.6
        self._messages = ["M"]
        self._enums = ["E"]

    def generate(self) -> str:
        source = self._source
        self._messages += [f"N{index}" for index in range(source.randrange(4))]
        bodies = [f"message {name} {{ {self._declare_fields(index)} }}" for index, name in enumerate(self._messages)]
        enum = "enum E { ZERO = 0; ONE = 1; NEGATIVE = -5; BIG = 100000; }"
        imports = "".join(f'import "{path}";' for path in built_in_files() if path.startswith("google/"))
        return f'syntax = "proto{3 if self._is_proto3 else 2}"; package p; {imports} {enum} {" ".join(bodies)}'

    def _declare_fields(self, index: int) -> str:
        source = self._source
        numbers = source.sample(range(1, 40), source.randrange(1, 9))
        fields = [self._declare_field(f"f{number}", number, index) for number in numbers]
        if source.random() < 0.4:
            members = source.sample(range(50, 60), source.randrange(1, 4))
            inner = " ".join(f"{self._choose_type(index)} o{number} = {number};" for number in members)
            fields.append(f"oneof choice {{ {inner} }}")
        return " ".join(fields)

    def _declare_field(self, name: str, number: int, index: int) -> str:
        source = self._source
        kind = source.random()
        if kind < 0.12:
            return f"map<{source.choice(KEYS)}, {self._choose_type(index)}> {name} = {number};"
        type_name = self._choose_type(index)
        if kind < 0.3:
            is_packable = type_name in SCALARS and type_name not in ("string", "bytes")
            packed = f" [packed = {source.choice(('true', 'false'))}]" if is_packable and source.random() < 0.5 else ""
            return f"repeated {type_name} {name} = {number}{packed};"
        if self._is_proto3:
            return f"{source.choice(('', '', 'optional '))}{type_name} {name} = {number};"
        label = "required" if source.random() < 0.1 and "N" not in type_name and type_name != "M" else "optional"
        default = ""
        if label == "optional" and source.random() < 0.3:
            value = {"string": '"a\\u00e9"', "bytes": r'"\377x"', "bool": "true", "E": "NEGATIVE"}.get(type_name, "7")
            default = f" [default = {value}]" if type_name in (*SCALARS, "E") else ""
        return f"{label} {type_name} {name} = {number}{default};"

    def _choose_type(self, index: int) -> str:
        source = self._source
        kind = source.random()
        if kind < 0.6:
            return source.choice(SCALARS)
        if kind < 0.7:
            return "E"
        if kind < 0.85:
            return source.choice(WELL_KNOWN)
        # Types refer to later types, and sometimes to themselves or earlier ones.
        later = self._messages[index + 1 :]
        return source.choice(later) if later and source.random() < 0.8 else source.choice(self._messages)


@cache
def build_built_in_descriptors() -> list[bytes]:
    """Return the descriptors of the built-in files, each after those that it imports."""
    imports = {path: file.imports for path, file in built_in_files().items()}
    return [
        build_descriptor(built_in_files()[path], NameIndex(ProtoFile(), {}), path)
        for path in TopologicalSorter(imports).static_order()
    ]


def load_class(text: str, name: str = "p.M") -> type[Message]:
    """Return Google's class for a message type of a `.proto` file."""
    pool = descriptor_pool.DescriptorPool()
    for descriptor in build_built_in_descriptors():
        pool.AddSerializedFile(descriptor)
    file = parse_file(text)
    pool.AddSerializedFile(build_descriptor(file, NameIndex(file, {}), "test.proto"))
    loaded: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return loaded


# Payloads


class PayloadGenerator:
    """Generates payloads of a message type."""

    def __init__(self, source: random.Random, message_class: type[Message], *, is_extreme: bool = True) -> None:
        self._source = source
        self._class = message_class
        self._is_extreme = is_extreme
        self._depth = 0

    def generate(self) -> bytes:
        message = self._class()
        self._depth = self._source.choice((0, 1, 1, 1, 2))
        self._fill(message, 0)
        data: bytes = message.SerializePartialToString()
        return data

    def mutate(self, payload: bytes) -> bytes:
        """Return a payload with errors, repeated or unknown fields."""
        source = self._source
        data = bytearray(payload)
        for _ in range(source.randrange(1, 3)):
            match source.randrange(5):
                case 0 if data:
                    data[source.randrange(len(data))] = source.randrange(256)
                case 1 if data:
                    del data[source.randrange(len(data)) :]
                case 2:
                    data += self.generate()
                case 3:
                    data += bytes(source.choice(((0xA0, 0x3F, 5), (0xA3, 0x3F, 8, 1, 0xA4, 0x3F), (0xA2, 0x3F, 1, 65))))
                case _:
                    at = source.randrange(len(data) + 1)
                    data[at:at] = source.randbytes(source.randrange(1, 4))
        return bytes(data)

    def _fill(self, message: Message, depth: int) -> None:
        descriptor: Descriptor = message.DESCRIPTOR
        source = self._source
        if descriptor.full_name.startswith("google.") and self._fill_well_known(message, depth):
            return
        for field in descriptor.fields:
            if (source.random() < 0.35 and not field.is_required) or (field.message_type and depth > self._depth):
                continue
            if _is_map(field):
                self._fill_map(message, field, depth)
            elif field.is_repeated:
                elements = getattr(message, field.name)
                for _ in range(source.choice((0, 1, 2, 3) if depth else (0, 1, 2, 8))):
                    if field.message_type:
                        self._fill(elements.add(), depth + 1)
                    else:
                        elements.append(self._choose(field))
            elif field.message_type:
                nested = getattr(message, field.name)
                nested.SetInParent()
                self._fill(nested, depth + 1)
            else:
                setattr(message, field.name, self._choose(field))

    def _fill_map(self, message: Message, field: FieldDescriptor, depth: int) -> None:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        entries = getattr(message, field.name)
        for _ in range(self._source.choice((0, 1, 2, 5))):
            chosen = self._choose(key)
            if value.message_type:
                self._fill(entries[chosen], depth + 1)
            else:
                entries[chosen] = self._choose(value)

    def _fill_well_known(self, message: Any, depth: int) -> bool:
        source = self._source
        match message.DESCRIPTOR.name:
            case "Timestamp":
                choices = [0, source.randrange(-(10**9), 2 * 10**9), -62135596800, 253402300799]
                message.seconds = source.choice([*choices, 2**60] if self._is_extreme else choices)
                nanos = [0, 5_000_000, 123_456_000, 999_999_000]
                message.nanos = source.choice([*nanos, 1, 999_999_999, -1, 10**9] if self._is_extreme else nanos)
            case "Date":
                message.year = source.choice((1, 1970, 2024, 9999, 0) if self._is_extreme else (1, 1970, 2024, 9999))
                message.month, message.day = source.randrange(1, 13), source.randrange(1, 29)
                if self._is_extreme:
                    message.day = source.randrange(1, 33)
            case "TimeOfDay":
                message.hours = source.randrange(25 if self._is_extreme else 24)
                message.minutes, message.seconds = source.randrange(60), source.randrange(60)
                message.nanos = source.choice((0, 1_000_000, 1000, 1, 999_999_999))
            case "Struct":
                for name in source.sample("abcd", 0 if depth > 4 else source.randrange(3)):
                    self._fill(message.fields[name], depth + 1)
            case "ListValue":
                for _ in range(0 if depth > 4 else source.randrange(3)):
                    self._fill(message.values.add(), depth + 1)
            case "Value":
                match source.randrange(6):
                    case 0:
                        message.null_value = 0
                    case 1:
                        message.number_value = source.choice((0.0, 1.5, -3.0, 1e300, float("nan"), 2.0**53))
                    case 2:
                        message.string_value = "text"
                    case 3:
                        message.bool_value = True
                    case 4 if depth < 5:
                        message.list_value.SetInParent()
                        self._fill(message.list_value, depth + 1)
                    case _:
                        message.struct_value.SetInParent()
                        self._fill(message.struct_value, depth + 1)
            case _:
                return False
        return True

    def _choose(self, field: FieldDescriptor) -> Any:
        source = self._source
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_BOOL:
                return source.random() < 0.5
            case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
                return source.randbytes(source.choice((0, 1, 5, 200)))
            case FieldDescriptor.CPPTYPE_STRING:
                return "".join(source.choices('aé€😀\0"', k=source.choice((0, 1, 5, 150))))
            case FieldDescriptor.CPPTYPE_DOUBLE:
                return source.choice((0.0, -0.0, 1.5, float("nan"), float("inf"), source.gauss(0, 1e6)))
            case FieldDescriptor.CPPTYPE_FLOAT:
                value = source.choice((0.0, 0.1, float("-inf"), source.gauss(0, 1e6)))
                return struct.unpack("<f", struct.pack("<f", value))[0]
            case FieldDescriptor.CPPTYPE_ENUM:
                is_open = not field.enum_type.is_closed and self._is_extreme
                return source.choice([*(value.number for value in field.enum_type.values), *([77, -9] * is_open)])
        is_signed = field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
        bits = 32 if field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32) else 64
        low, high = (-(1 << bits - 1), 1 << bits - 1) if is_signed else (0, 1 << bits)
        if source.random() < 0.5:
            return source.choice([number for number in INTEGERS if low <= number < high])
        return source.randrange(low, high) >> source.randrange(bits)


# The oracle


class AmbiguousPayloadError(Exception):
    """A payload that Google's parsers for different languages read differently."""


def read_oracle(message_class: type[Message], payload: bytes) -> dict[str, Any] | None:
    """Return the JSON form of a payload, or None if Google's parser rejects it or required fields are missing.

    Raises:
        AmbiguousPayloadError: An entry of a map contains an unknown field. Python's parser treats the entry as unknown;
            those of C++ and Java ignore the field.
    """
    try:
        message = message_class.FromString(payload)
    except DecodeError:
        return None
    try:
        if _has_unknown_entries(message):
            raise AmbiguousPayloadError
        form: dict[str, Any] | None = build_expected(message) if message.IsInitialized() else None
    except UnicodeDecodeError:  # parsers of proto2 accept strings that are not UTF-8
        return None
    return form


def _has_unknown_entries(message: Message) -> bool:
    maps = {field.number for field in message.DESCRIPTOR.fields if _is_map(field)}
    if any(unknown.field_number in maps and unknown.wire_type == 2 for unknown in UnknownFieldSet(message)):
        return True
    for field, value in message.ListFields():
        if _is_map(field):
            nested = value.values() if field.message_type.fields_by_name["value"].message_type else ()
        else:
            nested = () if not field.message_type else value if field.is_repeated else (value,)
        if any(_has_unknown_entries(each) for each in nested):
            return True
    return False


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def build_expected(message: Any) -> Any:
    """Return the JSON form of a message."""
    return {field.name: _build_field(message, field) for field in message.DESCRIPTOR.fields}


def _build_field(message: Any, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        element = field.message_type.fields_by_name["value"]
        keys = {key: ("false", "true")[key] if isinstance(key, bool) else str(key) for key in value}
        return {keys[key]: _build_element(value[key], element) for key in value}
    if field.is_repeated:
        return [_build_element(element, field) for element in value]
    has_default = field.has_default_value and not field.containing_oneof
    if field.has_presence and not message.HasField(field.name) and not has_default:
        return None
    return _build_element(value, field)


def _build_element(value: Any, field: FieldDescriptor) -> Any:
    if field.message_type:
        return _build_message(value)
    match field.type:
        case FieldDescriptor.TYPE_BYTES:
            return base64.b64encode(value).decode()
        case FieldDescriptor.TYPE_FLOAT:
            return format_single_float(value)
        case FieldDescriptor.TYPE_DOUBLE:
            return format_float(value)
        case FieldDescriptor.TYPE_UINT64 | FieldDescriptor.TYPE_FIXED64:
            return Decimal(value)
        case FieldDescriptor.TYPE_ENUM:
            known = field.enum_type.values_by_number.get(value)
            return value if known is None else known.name
    return value


def _build_message(message: Any) -> Any:
    name = message.DESCRIPTOR.full_name
    if name.startswith("google.protobuf.") and name.endswith("Value") and hasattr(message, "value"):
        return _build_element(message.value, message.DESCRIPTOR.fields_by_name["value"])
    special = None
    match name:
        case "google.protobuf.Timestamp":
            special = _build_timestamp(message.seconds, message.nanos)
        case "google.type.Date":
            try:
                special = date(message.year, message.month, message.day).isoformat()
            except ValueError:
                special = None
        case "google.type.TimeOfDay":
            parts = message.hours, message.minutes, message.seconds
            if all(0 <= part < limit for part, limit in zip(parts, (24, 60, 60), strict=True)):
                special = _add_fraction("{:02}:{:02}:{:02}".format(*parts), message.nanos)
        case "google.protobuf.Struct":
            return {key: _build_message(value) for key, value in message.fields.items()}
        case "google.protobuf.ListValue":
            return [_build_message(value) for value in message.values]
        case "google.protobuf.Value":
            return _build_json(message)
    return build_expected(message) if special is None else special


def _build_json(message: Any) -> Any:
    match message.WhichOneof("kind"):
        case "number_value":
            number = message.number_value
            return int(number) if number.is_integer() and abs(number) < 2**53 else format_float(number)
        case "struct_value" | "list_value" as kind:
            return _build_message(getattr(message, kind))
        case "string_value" | "bool_value" as kind:
            return getattr(message, kind)
    return None


def _build_timestamp(seconds: int, nanos: int) -> str | None:
    try:
        text = (datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat()
    except OverflowError:
        return None
    text_with_fraction = _add_fraction(text, nanos)
    return None if text_with_fraction is None else text_with_fraction + "Z"


def _add_fraction(text: str, nanos: int) -> str | None:
    if not 0 <= nanos < 10**9:
        return None
    if not nanos:
        return text
    digits = f"{nanos:09}"
    return f"{text}.{digits[:3] if digits.endswith('000000') else digits[:6] if digits.endswith('000') else digits}"


def sort_keys(form: Any) -> Any:
    """Return a JSON form whose objects have sorted keys: the order of maps is not defined."""
    if isinstance(form, dict):
        return {key: sort_keys(form[key]) for key in sorted(form)}
    return [sort_keys(each) for each in form] if isinstance(form, list) else form
