"""Conversion between `.proto` files and serialized `FileDescriptorProto` messages, in which some clients send schemas.

As in Confluent's registry, custom options other than those of Confluent are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from chronik.formats.protobuf.names import NameIndex, join_names
from chronik.formats.protobuf.syntax import (
    FIELD_NUMBER_MAX,
    NAME_LENGTH_MAX,
    SCALAR_TYPES,
    EnumValue,
    Extend,
    ExtensionRanges,
    Message,
    Method,
    Oneof,
    Option,
    OptionValue,
    ProtoEnum,
    ProtoField,
    ProtoFile,
    ProtoSyntaxError,
    Range,
    Service,
    Symbol,
    iter_types,
    split_map_type,
)
from chronik.formats.protobuf.types import (
    ENUM,
    FieldType,
    MessageType,
    TypeResolver,
    build_entry_name,
    get_integer_size,
    parse_default,
)
from chronik.formats.protobuf.wire import WireFormatError, read_message, write_message

DESCRIPTOR_BYTES_MAX: Final = 1 << 20

_META_EXTENSIONS: Final = {
    "FileOptions": "confluent.file_meta",
    "MessageOptions": "confluent.message_meta",
    "FieldOptions": "confluent.field_meta",
    "EnumOptions": "confluent.enum_meta",
    "EnumValueOptions": "confluent.enum_value_meta",
}

_DROPPED_OPTIONS: Final = frozenset(
    (
        "uninterpreted_option",
        "lazy",
        "unverified_lazy",
        "weak",
        "message_set_wire_format",
        "deprecated_legacy_json_field_conflicts",
    )
)
"""Options that Confluent's registry drops, too."""

_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPE_NAME: Final = re.compile(r"\.?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*+)*+")

_Values = Mapping[str, Any]


class _Descriptors(NamedTuple):
    """The message types of descriptors."""

    file: MessageType
    options: Mapping[str, MessageType]
    """The types of options by simple name, with the extensions of Confluent as fields."""
    scalars: Mapping[int, str]
    """Names of scalar types by the numbers of `FieldDescriptorProto.Type`."""


_TYPE_GROUP, _TYPE_MESSAGE, _TYPE_ENUM = 10, 11, 14


@cache
def _load_descriptors() -> _Descriptors:
    names = NameIndex(ProtoFile(), {})
    resolver = TypeResolver(names)
    file = resolver.find_message("google.protobuf.FileDescriptorProto")
    meta = resolver.find_message("confluent.Meta")
    options = {}
    for name in (*_META_EXTENSIONS, "OneofOptions", "ServiceOptions", "MethodOptions", "ExtensionRangeOptions"):
        options[name] = resolver.find_message(f"google.protobuf.{name}")
        if name in _META_EXTENSIONS:
            declared = names.find_extension(_META_EXTENSIONS[name], "")
            assert declared is not None
            field = ProtoField("optional", "Meta", declared.full_name, declared.field.number)
            extension = FieldType(field, "message", None, is_repeated=False, is_proto3=False)
            extension.message = meta
            options[name].add(extension)
    types = resolver.find_message("google.protobuf.FieldDescriptorProto").by_name["type"].enum
    assert types is not None
    scalars = {number: name.removeprefix("TYPE_").lower() for number, name in types.names.items()}
    return _Descriptors(file, options, {number: name for number, name in scalars.items() if name in SCALAR_TYPES})


# From descriptors


def parse_descriptor(data: bytes) -> ProtoFile:
    """Convert a serialized `FileDescriptorProto` to a file.

    Names are checked, everything else is not: render the file and parse the text to check it.

    Raises:
        ProtoSyntaxError: The data is not a descriptor, or a name in it is not valid.
    """
    if len(data) > DESCRIPTOR_BYTES_MAX:
        raise ProtoSyntaxError(f"the descriptor has {len(data)} bytes; the maximum is {DESCRIPTOR_BYTES_MAX}")
    descriptors = _load_descriptors()
    try:
        values = read_message(descriptors.file, data)
    except WireFormatError as error:
        raise ProtoSyntaxError(f"not a valid descriptor: {error}") from None
    return _DescriptorReader(descriptors, values).read()


class _DescriptorReader:
    def __init__(self, descriptors: _Descriptors, values: _Values) -> None:
        self._descriptors = descriptors
        self._values = values
        syntax = values.get("syntax", "")
        if syntax not in ("", "proto2", "proto3"):
            raise ProtoSyntaxError(f"unexpected syntax: {syntax[:64]}")
        self._syntax = syntax or None
        self._is_proto3 = syntax == "proto3"

    def read(self) -> ProtoFile:
        values = self._values
        public, weak = set(values.get("public_dependency", ())), set(values.get("weak_dependency", ()))
        imports: tuple[list[str], list[str], list[str]] = [], [], []
        for number, path in enumerate(values.get("dependency", ())):
            imports[1 if number in public else 2 if number in weak else 0].append(path)
        package = values.get("package") or None
        return ProtoFile(
            syntax=self._syntax,
            package=None if package is None else _check_name(package, _TYPE_NAME),
            imports=imports[0],
            public_imports=imports[1],
            weak_imports=imports[2],
            types=[
                *map(self._read_message, values.get("message_type", ())),
                *map(self._read_enum, values.get("enum_type", ())),
            ],
            services=[self._read_service(service) for service in values.get("service", ())],
            extends=self._read_extends(values.get("extension", ()), {}),
            options=self._read_options(values, "FileOptions"),
        )

    def _read_message(self, values: _Values) -> Message:
        types: list[Message | ProtoEnum] = [
            *map(self._read_message, values.get("nested_type", ())),
            *map(self._read_enum, values.get("enum_type", ())),
        ]
        nested = {declared.name: declared for declared in types if isinstance(declared, Message)}
        fields: list[ProtoField] = []
        oneofs = [
            Oneof(_check_name(each.get("name", "")), [], self._read_options(each, "OneofOptions"))
            for each in values.get("oneof_decl", ())
        ]
        groups: set[str] = set()
        for each in values.get("field", ()):
            index = each.get("oneof_index")
            in_oneof = index is not None and not each.get("proto3_optional")
            field = self._read_field(each, nested, in_oneof=in_oneof)
            if field.group is not None:
                groups.add(field.group.name)
            if not in_oneof:
                fields.append(field)
            elif 0 <= index < len(oneofs):
                oneofs[index].fields.append(field)
            else:
                raise ProtoSyntaxError(f"field {field.name} is in an unknown oneof")
        extends = self._read_extends(values.get("extension", ()), nested)
        return Message(
            _check_name(values.get("name", "")),
            fields,
            [oneof for oneof in oneofs if oneof.fields],
            [declared for declared in types if declared.name not in groups],
            self._read_options(values, "MessageOptions"),
            _read_reserved(values, end_offset=1),
            [
                ExtensionRanges([_read_range(each, 1)], self._read_options(each, "ExtensionRangeOptions"))
                for each in values.get("extension_range", ())
            ],
            extends,
        )

    def _read_field(self, values: _Values, nested: Mapping[str, Message], *, in_oneof: bool) -> ProtoField:
        name = _check_name(values.get("name", ""))
        number = values.get("type", 0)
        type_name = values.get("type_name") or self._descriptors.scalars.get(number)
        if type_name is None:
            raise ProtoSyntaxError(f"field {name} has no type")
        _check_name(type_name, _TYPE_NAME)
        group = nested.get(type_name.rpartition(".")[2]) if number == _TYPE_GROUP else None
        default = None
        if "default_value" in values and not self._is_proto3:
            default = _read_default(type_name, values["default_value"])
        return ProtoField(
            None if in_oneof else self._read_label(values),
            type_name if group is None else group.name,
            name,
            values.get("number", 0),
            self._read_options(values, "FieldOptions"),
            default,
            values.get("json_name"),
            group,
        )

    def _read_label(self, values: _Values) -> str | None:
        if values.get("proto3_optional"):
            return "optional"
        label = values.get("label", 1)
        if label == 3:
            return "repeated"
        return None if self._is_proto3 else "required" if label == 2 else "optional"

    def _read_enum(self, values: _Values) -> ProtoEnum:
        return ProtoEnum(
            _check_name(values.get("name", "")),
            [
                EnumValue(
                    _check_name(each.get("name", "")),
                    each.get("number", 0),
                    self._read_options(each, "EnumValueOptions"),
                )
                for each in values.get("value", ())
            ],
            self._read_options(values, "EnumOptions"),
            _read_reserved(values, end_offset=0),
        )

    def _read_extends(self, fields: Iterable[_Values], nested: Mapping[str, Message]) -> list[Extend]:
        extends: dict[str, Extend] = {}
        for values in fields:
            extended = _check_name(values.get("extendee", ""), _TYPE_NAME)
            field = self._read_field(values, nested, in_oneof=False)
            extends.setdefault(extended, Extend(extended, [])).fields.append(field)
        return list(extends.values())

    def _read_service(self, values: _Values) -> Service:
        methods = [
            Method(
                _check_name(each.get("name", "")),
                _check_name(each.get("input_type", ""), _TYPE_NAME),
                _check_name(each.get("output_type", ""), _TYPE_NAME),
                each.get("client_streaming", False),
                each.get("server_streaming", False),
                self._read_options(each, "MethodOptions"),
            )
            for each in values.get("method", ())
        ]
        return Service(_check_name(values.get("name", "")), methods, self._read_options(values, "ServiceOptions"))

    # Options

    def _read_options(self, values: _Values, type_name: str) -> list[Option]:
        found = values.get("options", {})
        if not found:
            return []
        options: list[Option] = []
        # Confluent's option is the last field of its type.
        for field in self._descriptors.options[type_name].fields:
            if field.name not in found or field.name in _DROPPED_OPTIONS:
                continue
            value = found[field.name]
            if field.name.startswith("confluent."):
                meta = _read_meta(value)
                options += [Option(field.name, meta, is_custom=True)] if meta else []
            else:
                elements = value if field.is_repeated else [value]
                options += [Option(field.name, _read_option_value(field, element)) for element in elements]
        return options


def _check_name(name: str, pattern: re.Pattern[str] = _IDENTIFIER) -> str:
    if len(name) > NAME_LENGTH_MAX or pattern.fullmatch(name) is None:
        raise ProtoSyntaxError(f"not a valid name: {name[:64]!r}")
    return name


def _read_range(values: _Values, end_offset: int) -> Range:
    start, end = values.get("start", 0), values.get("end", 0) - end_offset
    return start if start == end else (start, end)


def _read_reserved(values: _Values, end_offset: int) -> list[list[str | Range]]:
    ranges: list[list[str | Range]] = [[_read_range(each, end_offset)] for each in values.get("reserved_range", ())]
    return [*ranges, *([name] for name in values.get("reserved_name", ()))]


_UNESCAPED: Final = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPES: Final = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def _unescape_bytes(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, character = match.groups()
    if character is not None:
        return _ESCAPES.get(character, character)
    return bytes([(int(octal, 8) if octal else int(hexadecimal, 16)) & 0xFF])


def _read_default(type_name: str, text: str) -> OptionValue:
    if type_name == "string":
        return text
    if type_name == "bytes":
        return _UNESCAPED.sub(_unescape_bytes, text.encode()).decode("utf-8", "surrogateescape")
    if type_name in SCALAR_TYPES and type_name != "bool":
        is_number = re.fullmatch(r"-?[0-9][0-9a-zA-Z.+-]{0,40}|-?(?:inf|nan)", text) is not None
        if not is_number:
            raise ProtoSyntaxError(f"not a valid number: {text[:64]!r}")
        return Symbol(text, is_number=text[-1].isdigit())
    return Symbol(_check_name(text), is_number=False)


def _read_option_value(field: FieldType, value: Any) -> OptionValue:
    if field.message is not None:
        return {
            inner.name: [_read_option_value(inner, element) for element in value[inner.name]]
            if inner.is_repeated
            else _read_option_value(inner, value[inner.name])
            for inner in field.message.fields
            if inner.name in value
        }
    if field.enum is not None:
        return Symbol(field.enum.names.get(value, str(value)), is_number=False)
    if isinstance(value, bool):
        return Symbol("true" if value else "false", is_number=False)
    return value if isinstance(value, str) else Symbol(str(value), is_number=True)


def _read_meta(values: _Values) -> dict[str, OptionValue]:
    meta: dict[str, OptionValue] = {}
    if values.get("doc"):
        meta["doc"] = values["doc"]
    params: list[OptionValue] = []
    by_key = {entry.get("key", ""): entry.get("value", "") for entry in values.get("params", ())}
    for key, value in by_key.items():
        # Confluent's registry writes these two with the value first.
        is_value_first = key in ("precision", "scale")
        params.append({"value": value, "key": key} if is_value_first else {"key": key, "value": value})
    if params:
        meta["params"] = params
    if values.get("tags"):
        meta["tags"] = list(values["tags"])
    rules: list[OptionValue] = []
    for rule in values.get("rules", ()):
        parts: dict[str, OptionValue] = {name: rule[name] for name in ("name", "doc", "expr", "sql") if rule.get(name)}
        if parts:
            rules.append(parts)
    if rules:
        meta["rules"] = rules
    return meta


# To descriptors


def build_descriptor(file: ProtoFile, names: NameIndex, path: str) -> bytes:
    """Convert a file to a serialized `FileDescriptorProto` with a path as its name. Types become full names.

    Raises:
        ProtoSyntaxError: A type is not declared.
    """
    descriptors = _load_descriptors()
    return write_message(descriptors.file, _DescriptorBuilder(file, names, descriptors).build(path))


class _DescriptorBuilder:
    def __init__(self, file: ProtoFile, names: NameIndex, descriptors: _Descriptors) -> None:
        self._file = file
        self._names = names
        self._descriptors = descriptors
        self._type_numbers = {name: number for number, name in descriptors.scalars.items()}

    def build(self, path: str) -> dict[str, Any]:
        file = self._file
        package = (file.package or "").removeprefix(".")
        values: dict[str, Any] = {"name": path}
        if package:
            values["package"] = package
        # As in Confluent's registry, imports that are not among the references are omitted.
        self._names.add_built_in_files()
        known = [[each for each in paths if each in self._names.files] for paths in (file.imports, file.public_imports)]
        values["dependency"] = [*known[0], *known[1]]
        values["public_dependency"] = list(range(len(known[0]), len(values["dependency"])))
        values.update(self._build_types(file.types, package, ("message_type", "enum_type")))
        values["extension"] = list(self._build_extends(file.extends, package))
        values["service"] = [self._build_service(service, package) for service in file.services]
        values["options"] = self._build_options(file.options, "FileOptions", package)
        if file.syntax is not None and file.syntax != "proto2":
            values["syntax"] = file.syntax
        return values

    def _build_types(self, types: Sequence[Message | ProtoEnum], scope: str, keys: tuple[str, str]) -> dict[str, Any]:
        messages = [
            self._build_message(each, join_names(scope, each.name)) for each in types if isinstance(each, Message)
        ]
        enums = [self._build_enum(each, join_names(scope, each.name)) for each in types if isinstance(each, ProtoEnum)]
        return {keys[0]: messages, keys[1]: enums}

    def _build_message(self, message: Message, scope: str) -> dict[str, Any]:
        values = {
            "name": message.name,
            **self._build_types(list(iter_types(message)), scope, ("nested_type", "enum_type")),
        }
        fields: list[dict[str, Any]] = []
        oneofs = [
            {"name": each.name, "options": self._build_options(each.options, "OneofOptions", scope)}
            for each in message.oneofs
        ]
        entries = values["nested_type"]
        for field in message.fields:
            map_types = split_map_type(field.type)
            if map_types is None:
                fields.append(self._build_field(field, scope))
            else:
                entries.append(self._build_entry(field, map_types, scope))
                as_list = ProtoField(
                    "repeated", "." + join_names(scope, build_entry_name(field.name)), field.name, field.number
                )
                as_list.options, as_list.json_name = field.options, field.json_name
                fields.append(self._build_field(as_list, scope, _TYPE_MESSAGE))
        for index, oneof in enumerate(message.oneofs):
            fields += [{**self._build_field(field, scope), "oneof_index": index} for field in oneof.fields]
        names = {each["name"] for each in (*fields, *oneofs, *values["nested_type"], *values["enum_type"])}
        for built in fields:
            if built.get("proto3_optional"):
                # Optional fields of proto3 are in oneofs of their own, which follow the declared ones.
                name = f"_{built['name']}"
                while name in names:
                    name = f"X{name}"
                names.add(name)
                built["oneof_index"] = len(oneofs)
                oneofs.append({"name": name})
        reserved = [each for group in message.reserved for each in group]
        return {
            **values,
            "field": fields,
            "extension": list(self._build_extends(message.extends, scope)),
            "extension_range": [
                {
                    **_build_range(each, 1),
                    "options": self._build_options(ranges.options, "ExtensionRangeOptions", scope),
                }
                for ranges in message.extension_ranges
                for each in ranges.ranges
            ],
            "oneof_decl": oneofs,
            "options": self._build_options(message.options, "MessageOptions", scope),
            "reserved_range": [_build_range(each, 1) for each in reserved if not isinstance(each, str)],
            "reserved_name": [each for each in reserved if isinstance(each, str)],
        }

    def _build_entry(self, field: ProtoField, map_types: tuple[str, str], scope: str) -> dict[str, Any]:
        parts = [
            self._build_field(ProtoField("optional", type_name, name, number), scope, is_plain=True)
            for number, (name, type_name) in enumerate(zip(("key", "value"), map_types, strict=True), 1)
        ]
        return {"name": build_entry_name(field.name), "field": parts, "options": {"map_entry": True}}

    def _build_field(
        self, field: ProtoField, scope: str, number: int | None = None, *, is_plain: bool = False
    ) -> dict[str, Any]:
        values: dict[str, Any] = {
            "name": field.name,
            "number": field.number,
            "label": {"required": 2, "repeated": 3}.get(field.label or "", 1),
            "options": self._build_options(field.options, "FieldOptions", scope),
        }
        type_name = field.type
        if number is not None:
            values.update(type=number, type_name=type_name)
        elif type_name in SCALAR_TYPES:
            values["type"] = self._type_numbers[type_name]
        else:
            info = self._names.find_type(type_name, scope)
            if info is None:
                raise ProtoSyntaxError(f"Could not resolve type: {type_name}")
            number = _TYPE_ENUM if isinstance(info.declaration, ProtoEnum) else _TYPE_MESSAGE
            values.update(type=number if field.group is None else _TYPE_GROUP, type_name="." + info.full_name)
        if field.label == "optional" and self._file.is_proto3 and not is_plain:
            values["proto3_optional"] = True
        if field.default is not None:
            values["default_value"] = _build_default(type_name, field.default)
        if field.json_name is not None:
            values["json_name"] = field.json_name
        return {name: value for name, value in values.items() if value is not None}

    def _build_enum(self, enum: ProtoEnum, scope: str) -> dict[str, Any]:
        reserved = [each for group in enum.reserved for each in group]
        return {
            "name": enum.name,
            "value": [
                {
                    "name": value.name,
                    "number": value.number,
                    "options": self._build_options(value.options, "EnumValueOptions", scope),
                }
                for value in enum.values
            ],
            "options": self._build_options(enum.options, "EnumOptions", scope),
            "reserved_range": [_build_range(each, 0) for each in reserved if not isinstance(each, str)],
            "reserved_name": [each for each in reserved if isinstance(each, str)],
        }

    def _build_extends(self, extends: Sequence[Extend], scope: str) -> Iterator[dict[str, Any]]:
        for extend in extends:
            extended = self._resolve(extend.type, scope)
            for field in extend.fields:
                yield {**self._build_field(field, scope), "extendee": extended}

    def _build_service(self, service: Service, scope: str) -> dict[str, Any]:
        methods = []
        for method in service.methods:
            built: dict[str, Any] = {
                "name": method.name,
                "input_type": self._resolve(method.request, scope),
                "output_type": self._resolve(method.response, scope),
                "options": self._build_options(method.options, "MethodOptions", scope),
            }
            if method.has_request_stream:
                built["client_streaming"] = True
            if method.has_response_stream:
                built["server_streaming"] = True
            methods.append(built)
        options = self._build_options(service.options, "ServiceOptions", scope)
        return {"name": service.name, "method": methods, "options": options}

    def _resolve(self, type_name: str, scope: str) -> str:
        info = self._names.find_type(type_name, scope)
        if info is None:
            raise ProtoSyntaxError(f"Could not resolve type: {type_name}")
        return "." + info.full_name

    def _build_options(self, options: Sequence[Option], type_name: str, scope: str) -> dict[str, Any] | None:
        """Return the options of a declaration, or None if it has none."""
        message = self._descriptors.options[type_name]
        values: dict[str, Any] = {}
        for option in options:
            name = option.name
            if option.is_custom:
                found = self._names.find_extension(name, scope)
                name = name.removeprefix(".") if found is None else found.full_name
            field = message.by_name.get(name)
            if field is not None and option.is_custom is name.startswith("confluent."):
                _set_option(values, field, option.value)
        return values or None


def _set_option(values: dict[str, Any], field: FieldType, value: OptionValue) -> None:
    """Set a field of an options message. Values that are not of the type of the field are ignored."""
    if isinstance(value, list):
        for element in value if field.is_repeated else ():
            _set_option(values, field, element)
        return
    built: Any = None
    if field.message is not None:
        target: dict[str, Any] = {} if field.is_repeated else values.get(field.name, {})
        items = {value.name: value.value} if isinstance(value, Option) else value
        if not isinstance(items, dict):
            return
        for name, element in items.items():
            inner = field.message.by_name.get(name)
            if inner is not None:
                _set_option(target, inner, element)
        built = target
    elif isinstance(value, Symbol) and field.kind == ENUM and field.enum is not None:
        built = field.enum.numbers.get(value.text)
    elif isinstance(value, str | Symbol) and field.kind != ENUM:
        try:
            built = parse_default(field.kind, value)
        except ValueError:
            return
    if built is not None:
        if field.is_repeated:
            values.setdefault(field.name, []).append(built)
        else:
            values[field.name] = built


def _build_range(value: Range, end_offset: int) -> dict[str, int]:
    start, end = (value, value) if isinstance(value, int) else value
    return {"start": start, "end": min(end, 2**31 - 1 if end_offset == 0 else FIELD_NUMBER_MAX) + end_offset}


def _build_default(type_name: str, value: OptionValue) -> str | None:
    if type_name not in SCALAR_TYPES:
        return value.text if isinstance(value, Symbol) else None
    try:
        parsed = parse_default(type_name, value)
    except ValueError:
        return None
    if isinstance(parsed, bytes):
        return "".join(chr(byte) if 32 <= byte < 127 and byte not in b"\\\"'" else f"\\{byte:03o}" for byte in parsed)
    if isinstance(parsed, bool):
        return "true" if parsed else "false"
    if get_integer_size(type_name) is None and not isinstance(parsed, str):
        return repr(parsed).removesuffix(".0")
    return str(parsed)
